// SPDX-License-Identifier: Apache-2.0
// A main file of containerd's: what is planned can be read and says all that it said, twice is nothing, and
// taking it away gives back the bytes.
#include <string>
#include <vector>

#include "kata-manager/runtimes/containerd_plan.h"
#include "kata-manager/toml/toml.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

constexpr const char* kOurs = "kata-nvidia-gpu";

// In the whole of the file: a key in front of a plugin's tables, or another plugin, is nothing that the plan
// predicts.
void says_ours_and_no_more(const std::string& before, const std::string& after) {
  const auto was = kata::parse_toml(before, "before");
  const auto is = kata::parse_toml(after, "after");
  fuzz::require(was.has_value() && is.has_value(), "what is written is TOML");
  kata::TomlTable expected = *was;
  if (expected != *was) return;  // a nan is no nan's equal
  unsigned places = 0;
  for (const char* section : {kata::kCriOfVersion1, kata::kCriOfVersion2, kata::kCriRuntime}) {
    const kata::TomlValue* const ours =
        kata::find(*is, {"plugins", section, "containerd", "runtimes", kOurs});
    if (ours == nullptr || kata::find(*was, {"plugins", section, "containerd", "runtimes", kOurs}) != nullptr)
      continue;
    ++places;
    kata::TomlTable& runtimes = kata::table_at(expected, {"plugins", section, "containerd", "runtimes"});
    runtimes[kOurs] = *ours;
    // A table of runtimes replaces the built-in one, and brings it with it.
    if (const kata::TomlValue* const runc =
            kata::find(*is, {"plugins", section, "containerd", "runtimes", "runc"}))
      runtimes.try_emplace("runc", *runc);
  }
  fuzz::require(places == 1, "ours are there, once");
  fuzz::require(expected == *is, "nothing else is said, and nothing is said no more");
}

void one_release(const kata::ContainerdRelease& release, std::string_view text) {
  static const test::ScratchDirectory none;
  static const HostFs host(none.path());
  kata::RuntimePlace place;
  place.configuration = "/etc/containerd/config.toml";
  const std::vector<kata::RuntimeHandler> ours = {{.name = kOurs, .shim = "/s", .configuration = "/c"}};
  kata::ConfigFiles files(host);
  files.suppose(place.configuration, std::string(text));
  const auto first = kata::plan_containerd(release, place, files, ours);
  if (!first) return fuzz::require(!first.error().message.empty(), "a refusal says why");
  if (first->changes.empty()) return;  // the input has ours already
  fuzz::require(!first->after.no_start && !first->after.no_cri, "what is planned runs");
  const bool had_ours = text.find("# ferry kata") != std::string_view::npos;
  for (const kata::FileChange& change : first->changes) {
    if (!had_ours) says_ours_and_no_more(change.before.value_or(""), change.after.value_or(""));
    files.suppose(change.path, change.after);
  }
  const auto second = kata::plan_containerd(release, place, files, ours);
  fuzz::require(second && second->changes.empty(), "twice is nothing");
  const auto gone = kata::plan_containerd(release, place, files, {});
  fuzz::require(gone.has_value(), "what was put there can be taken away");
  for (const kata::FileChange& change : gone->changes) files.suppose(change.path, change.after);
  fuzz::require(had_ours || files.read(place.configuration).value_or("gone") == text,
                "the bytes are given back");
}

}  // namespace
}  // namespace ferry

void ferry::fuzz::one_input(std::string_view text) {
  for (const kata::ContainerdRelease& release :
       {kata::ContainerdRelease{1, 7, 24}, kata::ContainerdRelease{2, 1, 9},
        kata::ContainerdRelease{2, 3, 4}})
    one_release(release, text);
}
