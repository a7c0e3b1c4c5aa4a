//! The namespace of request variables, and texts with them. Settings use these types without depending on
//! requests.

use nowait_front::log::Formats;
pub use nowait_variables::complex::{Groups, Part};

/// The variables of requests.
pub enum HttpVariables {}

/// The text of the predefined log format.
pub const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \
     \"$request\" $status $body_bytes_sent \
     \"$http_referer\" \"$http_user_agent\"";

/// One JSON object per request. Variables of upstream servers may be lists, and are texts; so is the status, which has
/// leading zeros without a response or for HTTP/0.9.
const JSON: &str = "{\"time\":\"$time_iso8601\",\"client\":\"$remote_addr\",\"user\":\"$remote_user\",\
     \"host\":\"$host\",\"method\":\"$request_method\",\"uri\":\"$request_uri\",\"protocol\":\"$server_protocol\",\
     \"status\":\"$status\",\"bytes\":$body_bytes_sent,\"received\":$request_length,\
     \"referrer\":\"$http_referer\",\"user_agent\":\"$http_user_agent\",\"request_id\":\"$request_id\",\
     \"request_time\":$request_time,\"pool_wait\":\"$pool_wait_time\",\"pool_service\":\"$pool_service_time\",\
     \"pool\":\"$pool_name\",\"loop_delay\":$loop_delay,\
     \"upstream\":\"$upstream_addr\",\"upstream_status\":\"$upstream_status\",\
     \"upstream_connect\":\"$upstream_connect_time\",\"upstream_header\":\"$upstream_header_time\",\
     \"upstream_response\":\"$upstream_response_time\",\"cache\":\"$upstream_cache_status\"}";

/// The names of the Elastic Common Schema, version 8.
const ECS: &str = "{\"@timestamp\":\"$time_iso8601\",\"ecs\":{\"version\":\"8.11.0\"},\
     \"event\":{\"kind\":\"event\",\"category\":[\"web\"],\"dataset\":\"nowait.access\"},\
     \"source\":{\"ip\":\"$remote_addr\"},\"user\":{\"name\":\"$remote_user\"},\
     \"url\":{\"original\":\"$request_uri\",\"domain\":\"$host\",\"scheme\":\"$scheme\"},\
     \"http\":{\"version\":\"$server_protocol\",\"request\":{\"id\":\"$request_id\",\"method\":\"$request_method\",\
     \"referrer\":\"$http_referer\",\"bytes\":$request_length},\"response\":{\"status_code\":\"$status\",\
     \"bytes\":$bytes_sent,\"body\":{\"bytes\":$body_bytes_sent}}},\
     \"user_agent\":{\"original\":\"$http_user_agent\"},\
     \"nowait\":{\"request_time\":$request_time,\"pool_wait_time\":\"$pool_wait_time\",\
     \"pool_service_time\":\"$pool_service_time\",\"pool\":\"$pool_name\",\
     \"loop_delay\":$loop_delay,\"upstream_addr\":\"$upstream_addr\",\
     \"upstream_response_time\":\"$upstream_response_time\",\"cache\":\"$upstream_cache_status\"}}";

impl Formats for HttpVariables {
    const FORMAT: Option<(&'static str, &'static str)> = Some(("combined", COMBINED));
    const PRESETS: &'static [(&'static str, &'static str)] = &[("json", JSON), ("ecs", ECS)];
}

/// Text with variables of a request.
pub type Complex = nowait_variables::Complex<HttpVariables>;
/// The variables of one configuration.
pub type Table = nowait_variables::Table<HttpVariables>;
/// The variables of one configuration after it was read completely.
pub type Resolved = nowait_variables::Resolved<HttpVariables>;
/// The target of a `set`.
pub type SetTarget = nowait_variables::SetTarget<HttpVariables>;
/// Places that mention variables, for the error about unknown ones.
pub type Mentions = nowait_variables::Mentions<HttpVariables>;
