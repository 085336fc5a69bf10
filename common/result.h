// SPDX-License-Identifier: Apache-2.0
// How every function of Ferry says that it could not do what was asked.
//
// A caller handles an error in one of three ways: return it early, adding what it was doing
// (`return fail(std::move(r).error().during("bind group 17"))`); branch on its code; or show it, at the edge.
// Handle or return, never both. Library exceptions are converted where the library is called.
#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tl/expected.hpp>

namespace ferry {

/// The conditions of our own that callers branch on. What the operating system refused keeps its errno
/// (std::errc in the generic category). Exit statuses: exit_status.h.
enum class Errc {
  usage = 1,       ///< the command line or a value given on it is wrong
  invalid_config,  ///< a file given to us is malformed or asks for the impossible
  not_found,       ///< what was named does not exist on this host
  refused,         ///< in use, or cannot be moved whole; nothing was written
  differs,         ///< an `assert` found another state than the one asked for
  stuck,           ///< the kernel has not returned from a write by its deadline
  unreachable,     ///< another program (kubelet, libvirt) does not answer
  unsupported,     ///< this host lacks what is needed (IOMMU, module, kernel version)
  malformed_host,  ///< the kernel or another program shows something that cannot be read
  failed,          ///< was tried and did not hold when read back
};

const std::error_category& ferry_category() noexcept;
std::error_code make_error_code(Errc code) noexcept;

/// An error for people and programs: `code` is what to branch on, `message` says what was done, to what and
/// why it failed (cause last, no full stop), `hint` what to do about it (may be empty).
struct Error {
  std::error_code code;
  std::string message;
  std::string hint;

  /// Puts what was being done in front: "bind group 17: " + message.
  Error during(std::string_view what) && {
    return {.code = code, .message = std::string(what) + ": " + message, .hint = std::move(hint)};
  }
};

/// A value, or the error that kept it from being had. Dropping one unread does not compile.
template <typename T = void>
class [[nodiscard]] Result : public tl::expected<T, Error> {
  using Base = tl::expected<T, Error>;

 public:
  using Base::Base;
  Result() = default;
  Result(Base other)
      : Base(std::move(other)) {}  // NOLINT(google-explicit-constructor,hicpp-explicit-conversions)
};

inline tl::unexpected<Error> fail(Error error) {
  return tl::make_unexpected(std::move(error));
}
inline tl::unexpected<Error> fail(Errc code, std::string message, std::string hint = {}) {
  return fail(Error{.code = make_error_code(code), .message = std::move(message), .hint = std::move(hint)});
}

/// An error from errno: "read sys/x: No such file or directory".
Error error_from_errno(int number, std::string_view what);

/// True when the thing was not there, or went away between being listed and being read.
bool is_gone(const Error& error) noexcept;

}  // namespace ferry

template <>
struct std::is_error_code_enum<ferry::Errc> : std::true_type {};
