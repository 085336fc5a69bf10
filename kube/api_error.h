// SPDX-License-Identifier: Apache-2.0
// What an API server answers when it does not do what was asked.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"

namespace ferry {

/// The answers that callers branch on. Those of the transport keep its codes.
enum class ApiErrc {
  invalid = 1,        ///< 400, 413, 415, 422: asking again in the same words is no use
  unauthorized,       ///< 401: the server does not know us; the token may have been replaced meanwhile
  forbidden,          ///< 403: it does, and our role does not permit it
  not_found,          ///< 404
  already_exists,     ///< 409 to a create
  conflict,           ///< 409: the object is no longer as we had read it
  expired,            ///< 410: what was asked from is too long ago; read anew
  too_many_requests,  ///< 429: not done; later
  server_fault,       ///< 5xx: may have been done or not
  unexpected,         ///< any other
  too_large,          ///< more bytes than an answer may have; whoever asks for less may get it
};

const std::error_category& api_category() noexcept;
std::error_code make_error_code(ApiErrc code) noexcept;

/// What was asked: for messages, and for whoever mends the role.
struct Asked {
  std::string_view verb;  ///< as roles have it: "get", "patch"
  ApiKind kind;
  std::string_view subresource = {};
  std::string object;  ///< as people say it: "Node n1"
};

/// The error of an answer that is no 2xx. Its message is one line with what the server said, however it
/// said it; the hint of `forbidden` names the right that is missing.
Error error_of(const ApiReply& reply, const Asked& asked);
/// That of a Status object, which a watch gets in the middle of its stream.
Error error_of(const nlohmann::json& status, const Asked& asked);

/// The answer of a 2xx as an object. Errc::malformed_host: it is none.
Result<nlohmann::json> object_of(std::string_view body, const Asked& asked);

/// Whether trying again may do better, some time: no answer, too many requests, the server's fault.
bool may_mend(const Error& error) noexcept;

}  // namespace ferry

template <>
struct std::is_error_code_enum<ferry::ApiErrc> : std::true_type {};
