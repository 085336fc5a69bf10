// SPDX-License-Identifier: Apache-2.0
// The classes of a file as the runtimes of a host, planned and carried out: what `ferry kata` and `ferry
// hostd` have in common. Nothing is fetched here.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "kata-manager/container_runtime.h"
#include "kata-manager/kata_setup.h"
#include "kata-manager/runtime_at_hand.h"
#include "kata-manager/runtime_change.h"

namespace ferry {

/// The container runtime of a host, the way it is asked, and what makes it read its files.
struct KataRuntime {
  RuntimeAtHand at_hand;
  std::unique_ptr<ContainerRuntime> asked;
  std::unique_ptr<RuntimeControl> control;  ///< nullptr: nobody makes it, as it is wished
  /// Why there is no control although one is wished: it has no unit here. It matters only if it runs.
  std::optional<Error> no_control;
};

/// What is planned, and what came of it.
struct KataChange {
  RuntimeAtHand runtime;
  KataSetup setup;
  RuntimePlan plan;
  std::string control = {};                    ///< "restart containerd.service"; empty: nobody does
  std::optional<RuntimeOutcome> outcome = {};  ///< absent: not carried out
  /// Of what is only planned: why it would be refused as a whole, now. Absent: it would not, or that is not
  /// known.
  std::optional<Error> refusal = {};
  std::string left = {};  ///< why Kata's files of what leaves stay; empty: they do not
};

/// Whether Kata's files of what leaves stay although they should have gone. Where the runtime has not been
/// made to read its own files, and nobody was to, it is as it was wished that they stay.
bool is_left_undone(const KataChange& change);

/// Whether a change of an installation leaves the host with what it can have: a class or more of those that
/// are wanted, and nothing of others that is left undone. A class that the host cannot have counts for
/// nothing: one file may be for many hosts.
bool has_what_it_can(const KataChange& change);

using ArtifactOf = std::function<Result<std::optional<Artifact>>(const KataClass&)>;

/// The classes of a file shall be here, and no others of ours. Errors: as set_up() and plan_runtime().
Result<KataChange> plan_kata(const HostFs& host, const ClassFile& file, const KataDevices& devices,
                             const RuntimeAtHand& runtime, const ArtifactOf& artifact_of);

/// None of ours shall be here. Errors: as plan_runtime() and removal_of().
Result<KataChange> plan_no_kata(const HostFs& host, const RuntimeAtHand& runtime);

/// The part of it that is the container runtime's own. `change` must outlive it.
RuntimeChange change_of(const KataChange& change);

/// That a runtime cannot be made to read its files matters where it runs, and something is to be read.
Result<> check_control(KataRuntime& runtime, const RuntimePlan& plan);

/// may_carry_out() with the part of restart_check.h that starts nothing. The same errors.
Result<> may_carry_out_kata(const ChangeContext& context, HostWriter& writer, const KataChange& change);

/// vhost_vsock and vhost_net, which the VMs of Kata need; `hint` is for an error that has none.
Result<> load_kata_modules(HostWriter& writer, const std::string& hint);

/// Writes Kata's configuration of what comes, has the container runtime take the change over
/// (runtime_change.h), then removes the artifacts of what has left below `artifacts_dir` (absent: they stay),
/// and its configuration. A handler that is known always has its configuration, and so has a sandbox: what
/// may still be asked for, since the runtime runs and nobody made it read its files, or knows it by a file
/// that is not ours, or is in use (kata_users.h), is left to the next time. Where the runtime's files from
/// before are back, Kata's are too.
///
/// The host's lock is the caller's, and `change` was planned under it. Its outcome and notes are added to it.
/// True: all is done, false: something is left so, and why. Errors: as carry_out(), and Errc::refused where
/// another program works with artifacts that go, before anything is written; those of writing.
Result<bool> carry_out_kata(const ChangeContext& context, HostWriter& writer, KataChange& change,
                            const std::optional<std::filesystem::path>& artifacts_dir);

}  // namespace ferry
