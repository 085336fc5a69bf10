// SPDX-License-Identifier: Apache-2.0

#include "common/result.h"

namespace ferry {
namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "ferry"; }
  std::string message(int value) const override {
    switch (static_cast<Errc>(value)) {
      case Errc::usage:
        return "wrong usage";
      case Errc::invalid_config:
        return "invalid configuration";
      case Errc::not_found:
        return "not found";
      case Errc::refused:
        return "refused";
      case Errc::differs:
        return "differs";
      case Errc::stuck:
        return "stuck in the kernel";
      case Errc::unreachable:
        return "unreachable";
      case Errc::unsupported:
        return "not supported here";
      case Errc::malformed_host:
        return "unreadable host state";
      case Errc::failed:
        return "failed";
    }
    return "unknown";
  }
};

}  // namespace

const std::error_category& ferry_category() noexcept {
  static const Category category;
  return category;
}

std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), ferry_category()};
}

Error error_from_errno(int number, std::string_view what) {
  const std::error_code code(number, std::generic_category());
  return {.code = code, .message = std::string(what) + ": " + code.message()};
}

bool is_gone(const Error& error) noexcept {
  return error.code == std::errc::no_such_file_or_directory || error.code == std::errc::no_such_device ||
         error.code == std::errc::no_such_device_or_address || error.code == Errc::not_found;
}

}  // namespace ferry
