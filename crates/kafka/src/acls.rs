//! Access control lists do not exist here: the roles of API tokens say who may do what. Requests for them get that answer.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsResponse,
};
use kafka_protocol::protocol::StrBytes;

const NO_ACLS: &str =
    "there are no ACLs here: the roles of API tokens (applications.tokens: reader, writer, admin) say who may do what";

fn why() -> Option<StrBytes> {
    Some(StrBytes::from_static_str(NO_ACLS))
}

fn code() -> i16 {
    ResponseError::SecurityDisabled.code()
}

pub(crate) fn describe() -> DescribeAclsResponse {
    DescribeAclsResponse::default().with_error_code(code()).with_error_message(why())
}

pub(crate) fn create(request: &CreateAclsRequest) -> CreateAclsResponse {
    let refused = AclCreationResult::default().with_error_code(code()).with_error_message(why());
    CreateAclsResponse::default().with_results(vec![refused; request.creations.len()])
}

pub(crate) fn delete(request: &DeleteAclsRequest) -> DeleteAclsResponse {
    let refused = DeleteAclsFilterResult::default().with_error_code(code()).with_error_message(why());
    DeleteAclsResponse::default().with_filter_results(vec![refused; request.filters.len()])
}
