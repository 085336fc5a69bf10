// SPDX-License-Identifier: Apache-2.0
// The pieces of explanations that several kinds of objects share.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/output/explanation.h"

namespace ferry::cli {

/// A command that the user could type, and its effect. Without a command it is advice.
struct Way {
  std::string command;
  std::string does;
};

std::string driver_text(const std::optional<std::string>& driver);

/// The slot, the NUMA node and the bridges above a function.
void add_place(Explanation& out, const ExplainInputs& inputs, const vfio::PciFunction& function);
void add_group(Explanation& out, const ExplainInputs& inputs, const vfio::PciFunction& function);
/// The users, or a line that none was found, and the sources that could not be asked.
void add_users(Explanation& out, const ExplainInputs& inputs, const std::vector<vfio::DeviceUser>& users);
/// "allocated to pod studio/render"
std::string allocated_text(const std::string& pod);
/// The reason why the kubelet allocates none of the resource, even if the file lists it; empty: it allocates.
/// The file outlives the plugin that wrote it.
std::string not_served(const ExplainInputs& inputs, const std::string& resource);
void add_advertised(Explanation& out, const ExplainInputs& inputs,
                    const std::vector<api::AdvertisedDevice>& advertised_as,
                    const std::string& not_advertised);
/// The command that removes the vGPUs of a GPU.
std::string removal_of(const ExplainInputs& inputs, const vfio::PciAddress& address);
void add_ways(Explanation& out, const std::vector<Way>& ways);

/// A vGPU with its GPU; nullptr: there is none.
struct FoundVgpu {
  const host::AcceleratorDescription* gpu = nullptr;
  const host::VgpuDescription* vgpu = nullptr;
};
FoundVgpu find_vgpu(const host::NodeDescription& description, const std::string& id);

/// The accelerator on the function's card or in its group; nullptr: none.
const host::AcceleratorDescription* gpu_of(const ExplainInputs& inputs, const vfio::PciFunction& function);

/// The gravest fact of an accelerator's registers, or why they were not read.
std::pair<std::string, Tint> registers_note(const api::ReportedRegisters& registers);

// The explanations of the kinds of objects, each with the commands that would change it.

std::vector<Way> ways_of(const ExplainInputs& inputs, const host::AcceleratorDescription& description);
Explanation of_accelerator(const ExplainInputs& inputs, const host::AcceleratorDescription& description);

/// The ways for a function that counts only by name, or for a virtual function of one.
std::vector<Way> ways_by_name(const ExplainInputs& inputs, const vfio::PciFunction& function);
Explanation of_function(const ExplainInputs& inputs, const vfio::PciFunction& function);

Explanation of_vgpu(const ExplainInputs& inputs, const FoundVgpu& found);

std::vector<api::AdvertisedDevice> devices_of(const ExplainInputs& inputs, const std::string& resource);
/// The object of an advertised device; absent: it is not on this host.
std::optional<Subject> subject_of(const ExplainInputs& inputs, const api::AdvertisedDevice& device);
Explanation of_resource(const ExplainInputs& inputs, const std::string& resource);

}  // namespace ferry::cli
