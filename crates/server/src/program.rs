//! Selects the service that the program runs.

use crate::service::Service;
use crate::services::Services;

/// The service.
pub type Program = Services;

/// Its configuration before use.
pub type Plan = <Program as Service>::Plan;

/// Its configuration in use.
pub type Generation = <Program as Service>::Generation;
