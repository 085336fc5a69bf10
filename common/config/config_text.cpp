// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/config/config_tree.h"
#include "common/unique_fd.h"

namespace ferry {
namespace {

constexpr std::size_t kLargest = std::size_t{2} * 1024 * 1024;

Error as_config_error(int number, const std::string& file) {
  Error error = error_from_errno(number, "read " + file);
  error.code = Errc::invalid_config;
  error.hint = "give the path of a file that can be read";
  return error;
}

}  // namespace

std::string ConfigText::place(int line) const {
  if (one_line) return fmt::format("{}:{} (line {} of the text)", file, first_line, line);
  return fmt::format("{}:{}", file, first_line + line - 1);
}

Result<ConfigText> read_config_text(const std::filesystem::path& path) {
  ConfigText out;
  out.file = path == "-" ? "standard input" : path.string();
  UniqueFd opened;
  int fd = STDIN_FILENO;
  if (path != "-") {
    opened.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened.valid()) return fail(as_config_error(errno, out.file));
    fd = opened.get();
  }
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(as_config_error(errno, out.file));
    if (n == 0) return out;
    out.text.append(buffer.data(), static_cast<std::size_t>(n));
    if (out.text.size() > kLargest) {
      return fail(Errc::invalid_config,
                  fmt::format("read {}: larger than {} MiB", out.file, kLargest >> 20U));
    }
  }
}

}  // namespace ferry
