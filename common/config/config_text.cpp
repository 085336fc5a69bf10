// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/config/config_reader.h"
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

namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kConfigKey = "config.yaml";
constexpr const char* kData = "data";

/// The text in a ConfigMap, with its place in the file.
Result<ConfigText> text_in(const ConfigText& file, const ConfigNode& config_map) {
  const ConfigReader reader(file);
  const ConfigMember* data = config_map.find(kData);
  if (data == nullptr || data->value.kind != Kind::map || data->value.members.empty()) {
    return reader.refuse(data == nullptr ? config_map : data->value, kData, "the ConfigMap carries no data",
                         fmt::format("put the configuration under data, key {}", kConfigKey));
  }
  const std::vector<ConfigMember>& members = data->value.members;
  const ConfigMember* member = data->value.find(kConfigKey);
  if (member == nullptr && members.size() == 1) member = &members.front();
  if (member == nullptr) {
    std::vector<std::string> keys;
    keys.reserve(members.size());
    for (const ConfigMember& m : members) keys.push_back(m.key.text);
    return reader.refuse(
        data->value, kData,
        fmt::format("has no key {}, and more than one other: {}", kConfigKey, fmt::join(keys, ", ")),
        fmt::format("name the one with the configuration {}", kConfigKey));
  }
  const ConfigNode& value = member->value;
  if (value.kind == Kind::null) return ConfigText{.file = file.file, .text = {}, .first_line = value.line};
  if (!value.is_string()) {
    return reader.refuse(value, fmt::format("{}.{}", kData, member->key.text),
                         fmt::format("expected a text, found {}", value.described()),
                         "write it as a block: put | after the colon and indent the configuration below it");
  }
  return ConfigText{.file = file.file,
                    .text = value.text,
                    .first_line = value.block_line.value_or(value.line),
                    .one_line = !value.block_line.has_value()};
}

}  // namespace

Result<ConfigText> read_carried_text(const std::filesystem::path& path, std::string_view of_what,
                                     std::vector<std::string>* tolerated) {
  auto file = read_config_text(path);
  if (!file) return fail(std::move(file).error());
  return carried_text(std::move(*file), of_what, tolerated);
}

Result<ConfigText> carried_text(ConfigText file, std::string_view of_what,
                                std::vector<std::string>* tolerated) {
  auto root = parse_config(file, tolerated);
  if (!root) return fail(std::move(root).error());
  // No configuration file of Ferry has a key `kind`; every Kubernetes object has.
  const ConfigMember* kind = root->kind == Kind::map ? root->find("kind") : nullptr;
  if (kind == nullptr) return file;
  if (kind->value.kind != Kind::scalar || kind->value.text != "ConfigMap") {
    return ConfigReader(file).refuse(
        kind->key, "kind",
        fmt::format("expected a ConfigMap or a {} file, found {}", of_what, kind->value.described()),
        fmt::format("give the file itself, or a ConfigMap that has it under data, key {}", kConfigKey));
  }
  return text_in(file, *root);
}

}  // namespace ferry
