// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/vgpu_inputs.h"

#include <cstdio>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/process/standard_streams.h"
#include "policy/kubernetes_files.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {

Result<vgpu::ProfileFile> read_profiles_for(const ProfileOptions& options) {
  auto file = policy::read_profile_file(options.file, options.lenient ? Reading::lenient : Reading::strict);
  if (!file) return file;
  for (const std::string& warning : file->warnings) print_to_stderr("warning: {}\n", warning);
  return file;
}

Result<vgpu::VgpuHost> vgpu_host(const Session& session) {
  return vgpu_host(session, *session.vgpu_probe);
}

Result<vgpu::VgpuHost> vgpu_host(const Session& session, vfio::UseProbe& uses) {
  auto node = vgpu::node_identity(*session.host);
  if (!node) return fail(std::move(node).error());
  return vgpu::VgpuHost{.host = *session.host,
                        .writer = *session.writer,
                        .uses = uses,
                        .rules = session.rules,
                        .node = *node,
                        .management = session.management.get(),
                        .release = vfio::default_release(),
                        .releaser = session.releaser.get(),
                        .persistence = session.persistence.get(),
                        .on_release = [](const vfio::Step& step) { spdlog::info("{}", step.text()); }};
}

}  // namespace ferry::cli
