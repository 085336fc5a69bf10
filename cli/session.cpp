// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "cli/output/wait_note.h"
#include "host/system/systemd_services.h"
#include "host/usage/advertised_use_probe.h"
#include "host/usage/nvidia_driver.h"
#include "host/usage/use_probes.h"
#include "kubevirt-plugin/allocation/pod_resources.h"
#include "mdev/framework.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu_inventory.h"
#include "policy/accelerators.h"
#include "vgpu-dm/plan/stable_uuid.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {

Session open_session(const std::filesystem::path& host_root) {
  Session session;
  session.host = std::make_unique<HostFs>(host_root);
  session.writer = std::make_unique<SpawningWriter>(*session.host);
  session.rules = policy::default_accelerator_rules();
  const auto pods = [host = session.host.get()] { return plugin::list_pod_devices(*host); };
  session.hostd_probe = host::all_use_probes(*session.host, session.rules, pods);
  const auto for_people = [&session](vfio::UseProbe& of_hostd) {
    return std::make_unique<host::RunningPluginProbe>(
        *session.host, std::make_unique<host::ClaimUseProbe>(*session.host, of_hostd));
  };
  session.probe = for_people(*session.hostd_probe);
  session.open_probe = std::make_unique<host::ProcUseProbe>(*session.host);
  session.hostd_vgpu_probe =
      host::all_use_probes(*session.host, session.rules, pods, host::KubeletSilence::blinds);
  session.vgpu_probe = for_people(*session.hostd_vgpu_probe);
  session.driver_lock = std::make_unique<host::NvidiaUnbindLock>(*session.host, *session.writer);
  session.persistence = std::make_unique<host::NvidiaPersistence>(*session.host);
  session.management = std::make_unique<mdev::CalledGpuManagement>(*session.writer);
  session.service_manager = host::systemd_services(*session.host);
  return session;
}

TextOutput text_output(const Session& session) {
  return text_output_of(session.out, process_environment(), session.colours);
}

vfio::RebindContext rebind_context(const Session& session, const vfio::AcceleratorRules& rules) {
  return {.host = session.host.get(),
          .writer = session.writer.get(),
          .probe = session.probe.get(),
          .rules = rules,
          .on_step = [](const vfio::Step& step) { spdlog::info("{}", step.text()); },
          .driver_lock = session.driver_lock.get(),
          .service_manager = session.service_manager.get(),
          .persistence = session.persistence.get(),
          .must_stay = [host = session.host.get(), rules](const vfio::Inventory& inventory)
              -> Result<std::map<vfio::PciAddress, std::string>> {
            const auto vgpus = mdev::scan_vgpus(*host, inventory, rules);
            if (!vgpus) return fail(vgpus.error());
            const auto node = vgpu::node_identity(*host);
            return mdev::carriers_of_vgpus(
                *vgpus, [&](const mdev::VgpuDevice& device) { return node && vgpu::is_ours(*node, device); });
          }};
}

Result<vfio::AcceleratorRules> vgpu_rules(const Session& session, const vfio::AcceleratorRules& rules) {
  auto inventory = vfio::scan(*session.host);
  if (!inventory) return fail(std::move(inventory).error());
  return mdev::naming_vgpu_vendors(*inventory, rules);
}

Result<mdev::VgpuInventory> read_vgpus(const Session& session, const vfio::AcceleratorRules& rules) {
  auto inventory = vfio::scan(*session.host);
  if (!inventory) return fail(std::move(inventory).error());
  return vgpu::scan_known_vgpus(*session.host, *inventory, rules);
}

Result<mdev::VgpuInventory> read_vgpus(const Session& session) {
  auto inventory = vfio::scan(*session.host);
  if (!inventory) return fail(std::move(inventory).error());
  const auto rules = mdev::naming_vgpu_vendors(*inventory, session.rules);
  return vgpu::scan_known_vgpus(*session.host, *inventory, rules);
}

Result<> require_root(const Session& session) {
  if (!session.dry_run && ::geteuid() != 0 && session.host->root() == "/") {
    return fail(Errc::failed, "this changes the host and needs root",
                "run it with sudo, or add --dry-run to look only");
  }
  return {};
}

Result<std::unique_ptr<HostChange>> begin_change(const Session& session) {
  if (session.dry_run) return std::unique_ptr<HostChange>();
  if (auto r = require_root(session); !r) return fail(std::move(r).error());
  constexpr std::chrono::seconds kPatience{30};  // a bind of many groups takes a few seconds
  auto lock = [&] {
    const WaitNote waits("waiting for another command that changes this host");
    return NodeLock::take(*session.host, kPatience);
  }();
  if (!lock) return fail(std::move(lock).error());
  return std::make_unique<HostChange>(std::move(*lock));
}

ExitStatus complain(const Error& error) {
  return print_error("ferry", error);
}

}  // namespace ferry::cli
