// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cli/output/rebind_report.h"
#include "cli/output/wait_note.h"
#include "cli/verbs/question.h"
#include "cli/verbs/verbs.h"
#include "common/text/text.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {
namespace {

ExitStatus preview(const vfio::RebindContext& context, const Session& session, const ChosenUnits& selection,
                   vfio::Direction direction) {
  auto preview = vfio::preview_rebinds(context, selection.request, direction);
  if (!preview) return complain(preview.error());
  return print(session, show_rebinds(session, *preview, selection.skipped, direction));
}

ExitStatus nothing_to_do(const Session& session, const ChosenUnits& selection, vfio::Direction direction) {
  VerbOutput shown = show_rebinds(session, vfio::RebindPreview{}, {}, direction);
  shown.text = fmt::format("nothing to do: {}\n", selection.nothing);
  return print(session, shown);
}

/// The accelerators that a bind would change.
Result<AskedDevices> bound_by(const Session& session, const ChosenUnits& selection) {
  auto preview = vfio::preview_rebinds(rebind_context(session, selection.rules), selection.request,
                                       vfio::Direction::to_vfio);
  if (!preview) return fail(std::move(preview).error());
  AskedDevices out;
  for (const vfio::Rebind& rebind : preview->plan.rebinds)
    if (!rebind.steps.empty())
      for (const vfio::PciAddress& device : rebind.devices) out.insert(device.text());
  return out;
}

// `choose` runs under the lock of the host, since its answer may change until then, and before that for the
// question of a command that `asks`.
template <typename Choose>
ExitStatus run(const Session& session, vfio::Direction direction, bool asks, Choose choose) {
  if (session.dry_run) {
    auto selection = choose();
    if (!selection) return complain(selection.error());
    if (!selection->nothing.empty()) return nothing_to_do(session, *selection, direction);
    return preview(rebind_context(session, selection->rules), session, *selection, direction);
  }

  std::optional<AskedDevices> agreed;
  if (asks) {
    if (const auto root = require_root(session); !root) return complain(root.error());
    const auto selection = choose();
    if (!selection) return complain(selection.error());
    const auto devices = bound_by(session, *selection);
    if (!devices) return complain(devices.error());
    const std::string question =
        fmt::format("bind {} to vfio? Containers then cannot use {}.",
                    counted(devices->size(), "accelerator"), devices->size() == 1 ? "it" : "them");
    if (const auto yes = devices->empty() ? Result<>() : ask(question); !yes) return complain(yes.error());
    agreed = *devices;
  }

  const auto change = begin_change(session);
  if (!change) return complain(change.error());
  auto selection = choose();
  if (!selection) return complain(selection.error());
  if (!selection->nothing.empty()) return nothing_to_do(session, *selection, direction);
  if (agreed) {
    const auto devices = bound_by(session, *selection);
    if (!devices) return complain(devices.error());
    if (const auto same = check_answer(*agreed, *devices, "accelerator"); !same)
      return complain(same.error());
  }
  const auto outcome = [&] {
    const WaitNote waits("changing drivers");
    return vfio::apply_rebinds(rebind_context(session, selection->rules), selection->request, direction);
  }();
  if (!outcome) return complain(outcome.error());
  return print(session, show_rebinds(session, *outcome, selection->skipped, direction));
}

}  // namespace

ExitStatus bind_verb(const Session& session, const SelectionOptions& options, vfio::Direction direction) {
  const bool asks = direction == vfio::Direction::to_vfio && options.all && !options.yes && can_ask();
  return run(session, direction, asks, [&]() -> Result<ChosenUnits> {
    auto inventory = vfio::scan(*session.host);
    if (!inventory) return fail(std::move(inventory).error());
    auto vgpus = mdev::scan_vgpus(*session.host, *inventory, rules_asked_by(options.filter, session.rules));
    if (!vgpus) return fail(std::move(vgpus).error());
    auto record = vfio::read_undo_journal(*session.host);
    if (!record) return fail(std::move(record).error());
    plugin::DeviceNames names(*session.host);
    auto chosen = select(options, *inventory, session.rules, *vgpus, *record, names, direction);
    if (!chosen) return chosen;
    if (!chosen->rules.named.empty()) {
      vgpus = mdev::scan_vgpus(*session.host, *inventory, chosen->rules);  // named ones may carry vGPUs, too
      if (!vgpus) return fail(std::move(vgpus).error());
    }
    const auto node = vgpu::node_identity(*session.host);
    chosen->request.untouchable = mdev::carriers_of_vgpus(
        *vgpus, [&](const mdev::VgpuDevice& device) { return node && vgpu::is_ours(*node, device); });
    return chosen;
  });
}

ExitStatus restore_verb(const Session& session, const SelectionOptions& options) {
  return run(session, vfio::Direction::back, false, [&]() -> Result<ChosenUnits> {
    auto inventory = vfio::scan(*session.host);
    if (!inventory) return fail(std::move(inventory).error());
    auto record = vfio::read_undo_journal(*session.host);
    if (!record) return fail(std::move(record).error());
    plugin::DeviceNames names(*session.host);
    return select_recorded(options, *inventory, session.rules, *record, names);
  });
}

}  // namespace ferry::cli
