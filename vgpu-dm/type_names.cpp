// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/type_names.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include <nlohmann/json.hpp>

#include "common/boot_id.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

using nlohmann::json;
constexpr const char* kFile = "run/ferry/vgpu-type-names.json";
constexpr int kVersionOfFormat = 1;

/// Names by number.
using Names = std::map<std::string, std::string>;
/// By a GPU's address and IDs: another card in its slot is another GPU.
using Memory = std::map<std::string, Names>;

std::string key_of(const VgpuGpu& gpu) {
  return gpu.address().text() + " " + gpu.function.ids();
}

// Only a help: what is malformed or of another boot is none, and is written anew.
Memory read_memory(const HostFs& host) {
  const auto text = host.read_file(kFile);
  if (!text) return {};
  try {
    const json file = json::parse(*text);
    if (file.at("version") != kVersionOfFormat || file.at("boot_id") != boot_id(host).value_or("")) return {};
    return file.at("gpus").get<Memory>();
  } catch (const json::exception&) {
    return {};
  }
}

bool is_nameless(const VgpuDevice& device) {
  return device.type_name == device.type_id;
}

bool needs_names(const VgpuGpu& gpu) {
  return gpu.framework == VgpuFramework::vendor_vfio && std::ranges::any_of(gpu.devices, is_nameless);
}

void name(const Memory& memory, VgpuGpu& gpu) {
  const auto names = memory.find(key_of(gpu));
  if (names == memory.end()) return;
  for (VgpuDevice& device : gpu.devices) {
    const auto found = names->second.find(device.type_id);
    if (!is_nameless(device) || found == names->second.end()) continue;
    device.type_name = found->second;
    device.short_name = device.type_name.substr(device.type_name.find_last_of(' ') + 1);  // npos + 1 is 0
  }
}

/// What the table does not say of a GPU's types.
Names news_of(const VgpuGpu& gpu) {
  Names out;
  if (gpu.framework != VgpuFramework::vendor_vfio) return out;
  const BoardTypes table(gpu.function);
  for (const VgpuParent& parent : gpu.parents) {
    for (const VgpuType& type : parent.types) {
      const KnownType* known = table.find_id(type.id);
      if (known == nullptr || known->name != type.name) out.emplace(type.id, type.name);
    }
  }
  return out;
}

}  // namespace

void name_by_memory(const HostFs& host, VgpuInventory& inventory) {
  if (std::ranges::none_of(inventory.gpus, needs_names)) return;
  const Memory memory = read_memory(host);
  for (VgpuGpu& gpu : inventory.gpus) name(memory, gpu);
}

void name_by_memory(const HostFs& host, VgpuGpu& gpu) {
  if (needs_names(gpu)) name(read_memory(host), gpu);
}

Result<> remember_names(HostFs& host, std::span<const VgpuGpu> gpus) {
  static std::mutex one_at_a_time;
  Memory news;
  for (const VgpuGpu& gpu : gpus) {
    if (Names names = news_of(gpu); !names.empty()) news.emplace(key_of(gpu), std::move(names));
  }
  if (news.empty()) return {};
  const std::lock_guard lock(one_at_a_time);
  const Memory before = read_memory(host);
  Memory now = before;
  for (const auto& [gpu, names] : news) {
    for (const auto& [number, called] : names) now[gpu][number] = called;
  }
  if (now == before) return {};
  const json file = {{"version", kVersionOfFormat}, {"boot_id", boot_id(host).value_or("")}, {"gpus", now}};
  return host.write_file(kFile, file.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace ferry
