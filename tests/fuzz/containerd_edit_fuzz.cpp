// SPDX-License-Identifier: Apache-2.0
// A main file of containerd's: what is planned can be read, twice is nothing, and taking it away gives back
// the bytes.
#include <vector>

#include "kata-manager/containerd_plan.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

void one_release(const ContainerdRelease& release, std::string_view text) {
  static const test::ScratchDirectory none;
  static const HostFs host(none.path());
  const ContainerdSetup setup{.release = release};
  const std::vector<RuntimeHandler> ours = {{.name = "kata-nvidia-gpu", .shim = "/s", .configuration = "/c"}};
  ConfigFiles files(host);
  files.suppose(setup.main, std::string(text));
  const auto first = plan_containerd(setup, files, ours);
  if (!first) return fuzz::require(!first.error().message.empty(), "a refusal says why");
  if (first->changes.empty()) return;  // the input has ours already
  fuzz::require(!first->after.no_start && !first->after.no_cri, "what is planned runs");
  const bool had_ours = text.find("# ferry kata") != std::string_view::npos;
  for (const FileChange& change : first->changes) files.suppose(change.path, change.after);
  const auto second = plan_containerd(setup, files, ours);
  fuzz::require(second && second->changes.empty(), "twice is nothing");
  const auto gone = plan_containerd(setup, files, {});
  fuzz::require(gone.has_value(), "what was put there can be taken away");
  for (const FileChange& change : gone->changes) files.suppose(change.path, change.after);
  fuzz::require(had_ours || files.read(setup.main).value_or("gone") == text, "the bytes are given back");
}

}  // namespace
}  // namespace ferry

void ferry::fuzz::one_input(std::string_view text) {
  for (const ContainerdRelease& release :
       {ContainerdRelease{1, 7, 24}, ContainerdRelease{2, 1, 9}, ContainerdRelease{2, 3, 4}})
    one_release(release, text);
}
