// SPDX-License-Identifier: Apache-2.0
// Errors that an API server answers.
#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include <nlohmann/json_fwd.hpp>

#include "common/result.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"

namespace ferry {

/// The answers that callers branch on. Errors of the transport keep its codes.
enum class ApiErrc {
  invalid = 1,        ///< 400, 413, 415, 422: the same request would fail again
  unauthorized,       ///< 401: unknown client; the token may have been replaced meanwhile
  forbidden,          ///< 403: our role does not permit the request
  not_found,          ///< 404
  already_exists,     ///< 409 to a create
  conflict,           ///< 409: the object has changed since it was read
  expired,            ///< 410: the version asked from is too old; read anew
  too_many_requests,  ///< 429: not done; try later
  server_fault,       ///< 5xx: may have been done or not
  unexpected,         ///< any other
  too_large,          ///< the answer is above the limit; a smaller request may succeed
};

const std::error_category& api_category() noexcept;
std::error_code make_error_code(ApiErrc code) noexcept;

/// A request, for messages, and for hints about roles.
struct Asked {
  std::string_view verb;  ///< the word of roles: "get", "patch"
  ApiKind kind;
  std::string_view subresource = {};
  std::string object;  ///< for people: "Node n1"
};

/// The error of an answer that is no 2xx. Its message is one line with the server's words; the hint of
/// `forbidden` names the missing right.
Error error_of(const ApiReply& reply, const Asked& asked);
/// The error of a Status object within the stream of a watch.
Error error_of(const nlohmann::json& status, const Asked& asked);

/// The object in a 2xx answer. Errc::malformed_host: not a JSON object.
Result<nlohmann::json> object_of(std::string_view body, const Asked& asked);

/// True: a later try may succeed (no answer, too many requests, the server's fault).
bool may_mend(const Error& error) noexcept;

}  // namespace ferry

template <>
struct std::is_error_code_enum<ferry::ApiErrc> : std::true_type {};
