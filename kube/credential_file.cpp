// SPDX-License-Identifier: Apache-2.0
#include "kube/credential_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "common/file_status.h"
#include "common/text/text.h"
#include "common/unique_fd.h"
#include "hostfs/descriptor_reads.h"

namespace ferry::kube {
namespace {

constexpr off_t kMostBytes = off_t{1} << 20U;

}  // namespace

Result<const std::string*> CredentialReader::now() {
  if (credential_.file.empty()) return &credential_.text;
  auto read = from_file();
  if (!read && !credential_.text.empty()) return &credential_.text;
  return read;
}

Result<const std::string*> CredentialReader::from_file() {
  const std::string what = "read " + credential_.file.string();
  const auto refused = [&](Error error) {
    read_.reset();
    error.code = make_error_code(Errc::failed);
    return fail(std::move(error));
  };
  // Without O_NONBLOCK the opening of a named pipe would block.
  const UniqueFd fd(::open(credential_.file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const auto status = file_status(fd.get());
  if (!status) return refused(error_from_errno(errno, what));
  if (!S_ISREG(status->st_mode))
    return refused({.code = {}, .message = what + ": it is no file", .hint = {}});
  const Version version{static_cast<std::int64_t>(status->st_dev),
                        static_cast<std::int64_t>(status->st_ino),
                        status->st_size,
                        status->st_mtim.tv_sec,
                        status->st_mtim.tv_nsec,
                        status->st_ctim.tv_sec,
                        status->st_ctim.tv_nsec};
  if (read_ == version) return &text_;
  if (status->st_size > kMostBytes)
    return refused(
        {.code = {}, .message = fmt::format("{}: it has more than {} bytes, the limit", what, kMostBytes)});
  auto text = read_to_end(fd.get(), [&what] { return what; });
  if (!text) return refused(std::move(text).error());
  text_ = std::move(*text);
  read_ = version;
  return &text_;
}

Result<std::string> token_of(const std::string& text) {
  const std::string token(trimmed(text));
  const bool fits = std::ranges::all_of(token, [](char c) { return c > ' ' && c < '\x7F'; });
  if (token.empty() || !fits)
    return fail(Errc::failed, token.empty() ? "the token is empty" : "the token is not one word",
                "write the token and nothing else");
  return token;
}

}  // namespace ferry::kube
