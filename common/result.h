// SPDX-License-Identifier: Apache-2.0
// The result of every function of Ferry that can fail.
//
// A caller handles an error in one of three ways: return it early with the step that failed (`return
// fail(std::move(r).error().during("bind group 17"))`); branch on its code; or show it, at the edge. Handle
// or return, never both. Exceptions of a library are converted where the library is called.
#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tl/expected.hpp>

namespace ferry {

/// Ferry's own conditions that callers branch on. Errors of the operating system keep their errno (std::errc
/// in the generic category). Exit statuses: exit_status.h.
enum class Errc {
  usage = 1,       ///< the command line or a value given on it is wrong
  invalid_config,  ///< a given file is malformed or asks for the impossible
  not_found,       ///< the named thing does not exist on this host
  refused,         ///< in use, or cannot be bound as a whole; nothing was written
  differs,         ///< an `assert` found another state than the one asked for
  stuck,           ///< the kernel has not returned from a write by its deadline
  unreachable,     ///< another program (kubelet, libvirt) does not answer
  unsupported,     ///< this host lacks a requirement (IOMMU, module, kernel version)
  malformed_host,  ///< the kernel or another program shows something that cannot be read
  failed,          ///< was tried and did not hold when read back
};

const std::error_category& ferry_category() noexcept;
std::error_code make_error_code(Errc code) noexcept;

/// An error for people and programs. `code` is for branches; `message` has the action, its object and the
/// cause (last, no full stop); `hint` says how to help, and may be empty.
struct Error {
  std::error_code code;
  std::string message;
  std::string hint = {};

  /// "message; hint"
  std::string text() const { return hint.empty() ? message : message + "; " + hint; }
  /// Puts the failed step in front: "bind group 17: " + message.
  Error during(std::string_view what) && {
    return {.code = code, .message = std::string(what) + ": " + message, .hint = std::move(hint)};
  }
};

/// A value, or the error in its place. Dropping a Result unread does not compile.
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

/// True: the thing was missing, or vanished between being listed and being read.
bool is_gone(const Error& error) noexcept;

/// True: this process or the system had no descriptor or memory left. A later try may succeed, and the error
/// says nothing about its object.
inline bool lacks_means(const Error& error) {
  return error.code == std::errc::too_many_files_open ||
         error.code == std::errc::too_many_files_open_in_system || error.code == std::errc::not_enough_memory;
}

}  // namespace ferry

template <>
struct std::is_error_code_enum<ferry::Errc> : std::true_type {};
