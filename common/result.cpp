// SPDX-License-Identifier: Apache-2.0
#include "common/result.h"

#include "common/text/words.h"

namespace ferry {
namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "ferry"; }
  std::string message(int value) const override {
    constexpr Words<Errc, 10> kWords = {{{"wrong usage", Errc::usage},
                                         {"invalid configuration", Errc::invalid_config},
                                         {"not found", Errc::not_found},
                                         {"refused", Errc::refused},
                                         {"differs", Errc::differs},
                                         {"stuck in the kernel", Errc::stuck},
                                         {"unreachable", Errc::unreachable},
                                         {"not supported here", Errc::unsupported},
                                         {"unreadable host state", Errc::malformed_host},
                                         {"failed", Errc::failed}}};
    return std::string(word_for(kWords, static_cast<Errc>(value), "unknown"));
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
