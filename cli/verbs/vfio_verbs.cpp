// SPDX-License-Identifier: Apache-2.0
#include "cli/output/move_report.h"
#include "cli/verbs/verbs.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {
namespace {

// A host without an IOMMU refuses every group before a write, so the exit status is a refusal's.
ExitStatus complain_of_refusal(Error error) {
  if (error.code == Errc::unsupported) error.code = make_error_code(Errc::refused);
  return complain(error);
}

ExitStatus preview(const vfio::MoveContext& context, const Session& session, const ChosenUnits& selection,
                   vfio::Direction direction) {
  auto preview = vfio::preview_moves(context, selection.request, direction);
  if (!preview) return complain_of_refusal(std::move(preview).error());
  return print(session, show_moves(session, *preview, selection.skipped, direction));
}

ExitStatus apply(const vfio::MoveContext& context, const Session& session, const ChosenUnits& selection,
                 vfio::Direction direction) {
  auto outcome = vfio::apply_moves(context, selection.request, direction);
  if (!outcome) return complain_of_refusal(std::move(outcome).error());
  return print(session, show_moves(session, *outcome, selection.skipped, direction));
}

// `choose` runs only under the lock of the host, since its answer may change until then.
template <typename Choose>
ExitStatus run(const Session& session, vfio::Direction direction, Choose choose) {
  if (session.dry_run) {
    auto selection = choose();
    if (!selection) return complain(selection.error());
    return preview(move_context(session, selection->rules), session, *selection, direction);
  }
  const auto change = begin_change(session);
  if (!change) return complain(change.error());
  auto selection = choose();
  if (!selection) return complain(selection.error());
  return apply(move_context(session, selection->rules), session, *selection, direction);
}

}  // namespace

ExitStatus move_verb(const Session& session, const SelectionOptions& options, vfio::Direction direction) {
  return run(session, direction, [&]() -> Result<ChosenUnits> {
    auto inventory = vfio::scan(*session.host);
    if (!inventory) return fail(std::move(inventory).error());
    auto vgpus = mdev::scan_vgpus(*session.host, *inventory, session.rules);
    if (!vgpus) return fail(std::move(vgpus).error());
    auto record = vfio::read_records(*session.host);
    if (!record) return fail(std::move(record).error());
    plugin::DeviceNames names(*session.host);
    auto chosen = select(options, *inventory, session.rules, *vgpus, *record, names, direction);
    if (!chosen) return chosen;
    if (!chosen->rules.named.empty() || !chosen->rules.named_vendors.empty()) {
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
  return run(session, vfio::Direction::back, [&]() -> Result<ChosenUnits> {
    auto inventory = vfio::scan(*session.host);
    if (!inventory) return fail(std::move(inventory).error());
    auto record = vfio::read_records(*session.host);
    if (!record) return fail(std::move(record).error());
    plugin::DeviceNames names(*session.host);
    return select_recorded(options, *inventory, session.rules, *record, names);
  });
}

}  // namespace ferry::cli
