// SPDX-License-Identifier: Apache-2.0
#include "host/desired_state.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <utility>

#include <fmt/format.h>

#include "common/config/config_tree.h"
#include "common/file_status.h"
#include "policy/policy_yaml.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

// The limit of any configuration file.
constexpr std::size_t kLargest = std::size_t{2} * 1024 * 1024;
constexpr std::chrono::nanoseconds kYoung = std::chrono::seconds(1);

ConfigText as_text(const fs::path& file, std::string text) {
  return {.file = "/" + file.string(), .text = std::move(text)};
}

// The signs by which a change of a file is noticed.
struct Mark {
  std::chrono::nanoseconds written{};
  off_t size = 0;
  ino_t inode = 0;
  bool operator==(const Mark&) const = default;
};

// All zeros if the file does not exist; reading it gives the error.
Mark mark_of(const HostFs& host, const fs::path& path) {
  const auto fd = host.open(path.relative_path(), O_PATH);
  const auto status = fd ? file_status(fd->get()) : std::nullopt;
  if (!status) return {};
  return {.written = std::chrono::seconds(status->st_mtim.tv_sec) +
                     std::chrono::nanoseconds(status->st_mtim.tv_nsec),
          .size = status->st_size,
          .inode = status->st_ino};
}

/// `desired`: the desired state's own file, which names the file `path`.
Result<ConfigText> read_named(const HostFs& host, const fs::path& path, const fs::path& desired,
                              bool& may_be_incomplete, std::vector<std::string>* tolerated) {
  const Mark before = mark_of(host, path);
  auto text = host.read_file(path.relative_path());
  const Mark after = mark_of(host, path);
  // A file from the future, after the clock was set back, does not stay young for ever.
  const auto age = std::chrono::system_clock::now().time_since_epoch() - after.written;
  may_be_incomplete = before != after || (age > -kYoung && age < kYoung);
  if (!text)
    return fail(Errc::invalid_config, text.error().message,
                fmt::format("the key \"file\" of /{} names it", desired.string()));
  if (text->size() > kLargest)
    return fail(Errc::invalid_config, fmt::format("{}: larger than {} MiB", path.string(), kLargest >> 20U));
  return carried_text(as_text(path.relative_path(), std::move(*text)), "policy", tolerated);
}

}  // namespace

Result<std::optional<DesiredState>> read_desired(const HostFs& host, const fs::path& file, Reading how) {
  auto text = host.read_file(file, HostFs::Links::refused);
  if (!text && is_gone(text.error())) return std::optional<DesiredState>();
  if (!text) return fail(std::move(text).error());
  const ConfigText source = as_text(file, std::move(*text));
  auto read = api::read_desired_file(source);
  if (!read) return fail(std::move(read).error());
  DesiredState out{.file = std::move(*read), .policy = {}, .text = source.text};
  ConfigText config;
  if (!out.file.file.empty()) {
    auto of_file = read_named(host, out.file.file, file, out.may_be_incomplete,
                              how == Reading::lenient ? &out.warnings : nullptr);
    if (!of_file) return fail(std::move(of_file).error());
    config = std::move(*of_file);
    out.text += config.text;
  } else {
    config = out.file.config;
  }
  auto policies = policy::read_policies(config, how);
  if (!policies) return fail(std::move(policies).error());
  // A plain policy file was read twice, so its warnings appear twice.
  for (std::string& warning : policies->warnings)
    if (std::ranges::find(out.warnings, warning) == out.warnings.end())
      out.warnings.push_back(std::move(warning));
  auto policy = policy::select_policy(*policies, out.file.policy);
  if (!policy) return fail(std::move(policy).error());
  out.policy = std::move(*policy);
  return std::optional(std::move(out));
}

std::optional<fs::path> named_file(const HostFs& host, const fs::path& file) {
  auto text = host.read_file(file, HostFs::Links::refused);
  if (!text) return std::nullopt;
  auto read = api::read_desired_file(as_text(file, std::move(*text)));
  if (!read || read->file.empty()) return std::nullopt;
  return std::move(read->file);
}

}  // namespace ferry::host
