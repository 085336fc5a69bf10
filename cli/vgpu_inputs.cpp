// SPDX-License-Identifier: Apache-2.0
#include "cli/vgpu_inputs.h"

#include <cstdio>

#include <fmt/format.h>

#include "policy/kubernetes_files.h"
#include "vgpu-dm/stable_uuid.h"

namespace ferry {

Result<ProfileFile> read_profiles_for(const ProfileOptions& options) {
  auto file = read_profile_file(options.file, options.lenient ? Reading::lenient : Reading::strict);
  if (!file) {
    if (file.error().hint.empty()) {
      file.error().hint =
          "-f takes a profile file or a ConfigMap; `ferry vgpu validate` checks one without the host";
    }
    return file;
  }
  for (const std::string& warning : file->warnings) fmt::print(stderr, "warning: {}\n", warning);
  return file;
}

Result<VgpuHost> vgpu_host(const Session& session) {
  return vgpu_host(session, *session.vgpu_probe);
}

Result<VgpuHost> vgpu_host(const Session& session, UseProbe& uses) {
  auto node = node_identity(*session.host);
  if (!node) return fail(std::move(node).error());
  return VgpuHost{.host = *session.host,
                  .writer = *session.writer,
                  .uses = uses,
                  .rules = session.rules,
                  .node = *node,
                  .management = session.management.get()};
}

}  // namespace ferry
