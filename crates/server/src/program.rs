//! Which service the program runs.

use crate::service::Service;
use crate::stub_service::StubService;

/// The service.
pub type Program = StubService;

/// Its configuration before use.
pub type Plan = <Program as Service>::Plan;

/// Its configuration in use.
pub type Generation = <Program as Service>::Generation;
