//! Which service the program runs.

use crate::http_service::HttpService;
use crate::service::Service;

/// The service.
pub type Program = HttpService;

/// Its configuration before use.
pub type Plan = <Program as Service>::Plan;

/// Its configuration in use.
pub type Generation = <Program as Service>::Generation;
