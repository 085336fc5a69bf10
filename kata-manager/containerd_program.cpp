// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/containerd_program.h"

#include <array>
#include <sstream>

#include <fmt/format.h>

#include "kata-manager/toml_difference.h"

namespace ferry {
namespace {

constexpr std::chrono::seconds kPatience{10};

// Of what the program adds to a section by itself, a prediction has what CRI has built in; the keys that it
// has beside are its own affair. So: whatever is predicted is there.
std::optional<std::string> missing_or_other(const TomlTable& predicted, const TomlTable& said,
                                            const std::string& where) {
  for (const auto& [key, value] : predicted) {
    const auto there = said.find(key);
    const std::string path = where + "." + key;
    if (const TomlTable* table = value.table(); table != nullptr && there != said.end()) {
      const TomlTable* other = there->second.table();
      if (other == nullptr) return path + " is no table";
      if (auto found = missing_or_other(*table, *other, path)) return found;
      continue;
    }
    if (there == said.end()) return path + " is not there";
    if (!(there->second == value)) return path + " has another value";
  }
  return std::nullopt;
}

}  // namespace

Result<ContainerdRelease> ContainerdProgram::release() const {
  auto text =
      writer_->output({.root = {}, .words = {program_.string(), "--version"}, .device = {}}, kPatience);
  if (!text) return fail(std::move(text).error());
  // "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1"
  std::istringstream words(*text);
  std::string name;
  std::string repository;
  std::string version;
  if (!(words >> name >> repository >> version) || name != "containerd") {
    return fail(Errc::malformed_host, fmt::format("{} --version says \"{}\"", program_.string(),
                                                  text->substr(0, text->find('\n'))));
  }
  return ContainerdRelease::parse(version);
}

Result<std::optional<std::string>> ContainerdProgram::contradiction(const ContainerdOutcome& predicted,
                                                                    const std::filesystem::path& main) const {
  const auto none = std::optional<std::string>();
  auto text = writer_->output(
      {.root = {}, .words = {program_.string(), "--config", main.string(), "config", "dump"}, .device = {}},
      kPatience);
  if (!text && text.error().code == make_error_code(Errc::failed)) {
    if (predicted.no_start) return none;
    return std::optional<std::string>("it cannot read them");
  }
  if (!text) return fail(std::move(text).error());
  const auto said = parse_toml(*text, program_.string() + " config dump");
  if (!said) return fail(Error(said.error()));
  const TomlValue* plugins = find(*said, {"plugins"});
  if (plugins == nullptr || plugins->table() == nullptr)
    return std::optional<std::string>("it has no plugins");
  for (const char* section : {kCriOfVersion2, kCriRuntime, kCriImages}) {
    const TomlValue* ours = find(predicted.plugins, {section});
    if (ours == nullptr || ours->table() == nullptr || ours->table()->empty()) continue;
    const TomlValue* theirs = find(*plugins->table(), {section});
    if (theirs == nullptr || theirs->table() == nullptr)
      return std::optional(fmt::format("it has no section {}", section));
    if (auto found = missing_or_other(*ours->table(), *theirs->table(), section))
      return std::optional(*found);
  }
  return none;
}

}  // namespace ferry
