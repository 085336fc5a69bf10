// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/vgpu_inputs.h"

#include <cstdio>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/process/standard_streams.h"
#include "policy/kubernetes_files.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {

Result<std::set<vfio::PciAddress>> parse_gpus(const std::vector<std::string>& addresses) {
  std::set<vfio::PciAddress> out;
  for (const std::string& text : addresses) {
    auto address = vfio::PciAddress::parse(text);
    if (!address) return fail(std::move(address).error());
    out.insert(*address);
  }
  return out;
}

Result<> check_gpus(const std::set<vfio::PciAddress>& gpus, const mdev::VgpuInventory& inventory) {
  for (const vfio::PciAddress& gpu : gpus) {
    if (inventory.find(gpu) == nullptr) {
      return fail(Errc::not_found, fmt::format("there is no GPU {} on this host", gpu.text()),
                  "`ferry vgpu types` lists the GPUs");
    }
  }
  return {};
}

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
