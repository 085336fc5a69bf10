// SPDX-License-Identifier: Apache-2.0
// The plugin's lists as its other processes read them (api/advertised_resources.h), and what a plugin process
// takes over from the file of an earlier one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "api/advertised_resources.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/allocation/allocation_core.h"
#include "kubevirt-plugin/allocation/snapshot.h"
#include "kubevirt-plugin/discovery/scanner.h"

namespace ferry::plugin {

/// `registered`: the resources whose lists the kubelet reads now. `standby`: the reason for standby; empty:
/// the plugin serves.
api::AdvertisedResources advertised_resources(const Snapshot& snapshot,
                                              const std::set<std::string>& registered,
                                              std::span<const NotAdvertised> not_advertised,
                                              std::uint64_t state_generation,
                                              std::span<const api::FatalErrorsOf> fatal_errors = {},
                                              const std::string& standby = {});

/// The part of an earlier process's file that this process takes over (api::read_allocations()). Empty: there
/// is no file, or it cannot be read, which is logged.
api::AdvertisedResources read_former(const HostFs& host, const std::filesystem::path& file);

/// The allocated devices, each by itself.
std::vector<Holding> allocated_by(const api::AdvertisedResources& advertised);

/// The devices that their pods have released and hostd has not sanitized since.
Allocations::UseCounts used_by(const api::AdvertisedResources& advertised);

/// Devices that are not allocated and cannot be, each with the reason. Devices that only await a release are
/// left out.
std::vector<NotAdvertised> unfit_by(const api::AdvertisedResources& advertised);

/// The resources for Kata.
std::set<std::string> kata_resources_of(const api::AdvertisedResources& advertised);

}  // namespace ferry::plugin
