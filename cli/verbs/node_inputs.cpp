// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/node_inputs.h"

#include <memory>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/process/standard_streams.h"
#include "host/claims/claim_record.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "policy/kubernetes_files.h"
#include "policy/policy_yaml.h"
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

Result<policy::PolicyFile> policies_of(const ProfileOptions& options) {
  auto file = policy::read_policy_file(options.file, options.lenient ? Reading::lenient : Reading::strict);
  if (!file) return file;
  for (const std::string& warning : file->warnings) print_to_stderr("warning: {}\n", warning);
  return file;
}

Result<policy::Policy> chosen_policy(const ProfileOptions& options) {
  auto file = policies_of(options);
  if (!file) return fail(std::move(file).error());
  return policy::select_policy(*file, options.name);
}

policy::ModelNames model_names(const Session& session) {
  return [names = std::make_shared<plugin::DeviceNames>(*session.host)](const vfio::PciFunction& gpu) {
    return names->find(gpu.vendor, gpu.device).value_or("");
  };
}

host::NodeProbes node_probes(const Session& session) {
  return {.rebinds = *session.probe, .vgpus = *session.vgpu_probe, .open = *session.open_probe};
}

host::NodeProbes hostd_probes(const Session& session) {
  return {.rebinds = *session.hostd_probe, .vgpus = *session.hostd_vgpu_probe, .open = *session.open_probe};
}

Result<host::NodeHost> node_host(const Session& session, const host::NodeProbes& uses) {
  auto claims = host::gpus_with_claims(*session.host);
  if (!claims) return fail(std::move(claims).error());
  if (const auto& fault = claims->fault)
    print_to_stderr("warning: {}: each GPU for DRA counts as claimed\nhint: {}\n", fault->message,
                    fault->hint);
  auto host = hostd_host(session, uses);
  if (host) host->dra = std::move(claims->gpus);
  return host;
}

Result<host::NodeHost> hostd_host(const Session& session, const host::NodeProbes& uses) {
  auto vgpus = vgpu_host(session, uses.vgpus);
  if (!vgpus) return fail(std::move(vgpus).error());
  host::NodeHost host{.rebinds = rebind_context(session, session.rules),
                      .vgpus = std::move(*vgpus),
                      .models = model_names(session)};
  // hostd reports the error, and changes no GPU then.
  if (auto claims = host::gpus_with_claims(*session.host)) host.dra = std::move(claims->gpus);
  host.rebinds.probe = &uses.rebinds;
  return host;
}

}  // namespace ferry::cli
