// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/types/type_table.h"

#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "mdev/framework.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/types/type_names.h"

namespace ferry::vgpu {
namespace {

using testing::ElementsAre;

constexpr std::uint16_t kNvidia = 0x10de;

vfio::PciFunction board(std::uint16_t device, std::optional<std::uint16_t> subsystem = {}) {
  vfio::PciFunction out;
  out.vendor = kNvidia;
  out.device = device;
  out.subsystem_device = subsystem;
  if (subsystem) out.subsystem_vendor = kNvidia;
  return out;
}

/// "A16", "A2": the board words of its types.
std::set<std::string> words(const vfio::PciFunction& gpu) {
  std::set<std::string> out;
  const BoardTypes types(gpu);
  for (const mdev::VgpuType& type : types.all()) {
    out.insert(type.short_name.substr(0, type.short_name.find('-')));
  }
  return out;
}

/// "nvidia-1153, 12288 MiB, 4 at most, 2g.48gb+gfx x 4"; "?" what is not known, "none" for no type.
std::string known(const vfio::PciFunction& gpu, std::string_view name) {
  const BoardTypes types(gpu);
  const mdev::VgpuType* type = types.find(name);
  if (type == nullptr) return "none";
  const auto shown = [](std::optional<std::uint32_t> value) { return value ? std::to_string(*value) : "?"; };
  std::string out = (type->id.empty() ? "?" : type->id) + ", " + shown(type->framebuffer_mib) + " MiB, " +
                    shown(type->max_instances) + " at most";
  const auto numbers = VgpuTypeName::of_driver(type->short_name);
  if (!numbers || !numbers->is_mig_backed()) return out;
  return out + ", " + (type->mig_profile.empty() ? "?" : type->mig_profile) + " x " +
         shown(type->max_per_instance);
}

TEST(TypeTable, KnowsTheBoardsThatCanHaveGpuInstances) {
  EXPECT_TRUE(BoardTypes(board(0x2bb5)).has_mig_backed());
  EXPECT_TRUE(BoardTypes(board(0x2c3a)).has_mig_backed()) << "the names of its instances are not known";
  EXPECT_FALSE(BoardTypes(board(0x26b9)).has_mig_backed());
}

TEST(TypeTable, KnowsNumbersSizesAndMaxima) {
  EXPECT_EQ(known(board(0x26b9), "NVIDIA L40S-12Q"), "1153, 12288 MiB, 4 at most");
  EXPECT_EQ(known(board(0x26b9), "L40S-12Q"), "1153, 12288 MiB, 4 at most");
  EXPECT_EQ(known(board(0x1eb8), "T4-4Q"), "?, 4096 MiB, 4 at most");
  EXPECT_EQ(known(board(0x13f2), "M60-0Q"), "?, 512 MiB, 16 at most");
  EXPECT_EQ(known(board(0x26b9), "T4-4Q"), "none");
  EXPECT_TRUE(BoardTypes(board(0x1b80)).all().empty());
}

TEST(TypeTable, KnowsWhichGpuInstanceATypeNeeds) {
  EXPECT_EQ(known(board(0x233b), "H200-1-18C"), "1430, 18432 MiB, 7 at most, 1g.18gb x 1");
  EXPECT_EQ(known(board(0x233b), "H200-1-35C"), "1431, 35840 MiB, 4 at most, 1g.35gb x 1");
  EXPECT_EQ(known(board(0x233b), "H200-1-18CME"), "1429, 18432 MiB, 1 at most, 1g.18gb+me x 1");
  EXPECT_EQ(known(board(0x20b7), "A30-2-12CME"), "1052, 12288 MiB, 1 at most, 2g.12gb+me x 1");
  // What a name of RTX PRO 6000 Blackwell says is the vGPU's size, not the instance's.
  EXPECT_EQ(known(board(0x2bb5), "DC-1-8C"), "1557, 8192 MiB, 12 at most, 1g.24gb+gfx x 3");
  EXPECT_EQ(known(board(0x2bb5), "DC-2-12Q"), "1564, 12288 MiB, 8 at most, 2g.48gb+gfx x 4");
  EXPECT_EQ(known(board(0x2bb5), "DC-4-96Q"), "1585, 98304 MiB, 1 at most, 4g.96gb+gfx x 1");
  EXPECT_EQ(known(board(0x2bb5), "DC-16Q"), "?, 16384 MiB, 6 at most");
  // Their instances are known to be needed and have no known name.
  EXPECT_EQ(known(board(0x2bb9), "6000D-1-42Q"), "2199, 43008 MiB, 2 at most, ? x ?");
  EXPECT_EQ(known(board(0x2c3a), "DC-1-16Q"), "?, 16384 MiB, 2 at most, ? x ?");
  EXPECT_EQ(known(board(0x2c3a), "DC-16Q"), "?, 16384 MiB, 2 at most");
}

TEST(TypeTable, DistinguishesBoardsOfOneDeviceIdBySubsystem) {
  EXPECT_THAT(words(board(0x25b6, 0x14a9)), ElementsAre("A16"));
  EXPECT_THAT(words(board(0x25b6, 0x157e)), ElementsAre("A2"));
  EXPECT_THAT(words(board(0x1e78, 0x13d8)), ElementsAre("RTX8000P"));
  EXPECT_THAT(words(board(0x1e78, 0x13d9)), ElementsAre("RTX6000P"));
  EXPECT_THAT(words(board(0x1e30, 0x129e)), ElementsAre("RTX8000"));
  EXPECT_THAT(words(board(0x1e30, 0x12ba)), ElementsAre("RTX6000"));
  vfio::PciFunction hp = board(0x1e30, 0x129e);
  hp.subsystem_vendor = 0x103c;
  EXPECT_THAT(words(hp), ElementsAre("RTX8000"));
}

TEST(TypeTable, HasTheMemoryOfTheSmallestBoardForAnUnlistedOne) {
  const auto memory = [](const vfio::PciFunction& gpu) { return BoardTypes(gpu).memory_mib(); };
  EXPECT_EQ(memory(board(0x1e78, 0x13d8)), 49152U);
  EXPECT_EQ(memory(board(0x1e78, 0x13d9)), 24576U);
  EXPECT_EQ(memory(board(0x1e78, 0x0001)), 24576U);
  EXPECT_EQ(memory(board(0x1e78)), 24576U);
  EXPECT_EQ(memory(board(0x25b6, 0x0001)), 16384U);
  EXPECT_EQ(memory(board(0x1e37)), 16384U) << "the types of one board may have several names";
  EXPECT_EQ(memory(board(0x26b9)), 49152U);
  EXPECT_EQ(memory(board(0x0666)), 0U);
}

TEST(TypeTable, HasAllTypesOfTheDeviceForABoardThatNobodyHasSeen) {
  EXPECT_THAT(words(board(0x25b6, 0x0001)), ElementsAre("A16", "A2"));
  EXPECT_THAT(words(board(0x25b6)), ElementsAre("A16", "A2"));
}

TEST(TypeTable, FindsTheNewestNameOfANumber) {
  const BoardTypes types(board(0x233b));
  for (const char* id : {"nvidia-1430", "1430"}) {
    const mdev::VgpuType* type = types.find_id(id);
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(type->name, "NVIDIA H200-1-18C");
  }
  EXPECT_EQ(types.find_id("nvidia-9999"), nullptr);
  EXPECT_EQ(types.find_id("nvidia-"), nullptr);
  EXPECT_EQ(types.find_id("i915-GVTg_V5_4"), nullptr);
}

TEST(TypeTable, IsWellFormed) {
  std::istringstream in{std::string(type_table_text())};
  std::set<std::string> devices;
  std::set<std::pair<std::string, std::string>> seen;
  std::string last;
  std::size_t lines = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    ++lines;
    std::vector<std::string> fields;
    std::istringstream split(line + "\t");
    for (std::string field; std::getline(split, field, '\t');) fields.push_back(field);
    ASSERT_EQ(fields.size(), 7U) << line;
    EXPECT_FALSE(fields[2].empty()) << line;
    EXPECT_TRUE(seen.emplace(fields[0] + fields[1], fields[2]).second) << "twice: " << line;
    if (fields[0] != last) {
      EXPECT_TRUE(devices.insert(fields[0]).second) << "not together: " << line;
    }
    last = fields[0];
  }
  EXPECT_EQ(lines, 1558U);
  EXPECT_EQ(devices.size(), 71U);
}

mdev::VgpuType type_called(const std::string& id, const std::string& name) {
  mdev::VgpuType out;
  out.id = id;
  out.name = name;
  out.short_name = name.substr(name.find_last_of(' ') + 1);
  return out;
}

/// One GPU with one type and one vGPU.
mdev::VgpuInventory one_gpu(const vfio::PciFunction& function, const mdev::VgpuType& type) {
  mdev::VgpuGpu gpu;
  gpu.function = function;
  gpu.parents.push_back({.address = {}, .types = {type}, .problem = {}});
  mdev::VgpuDevice device;
  device.type_id = type.id;
  device.type_name = type.name;
  device.short_name = type.short_name;
  gpu.devices.push_back(device);
  return {.gpus = {gpu}, .notes = {}};
}

TEST(FillIn, NamesWhatHasOnlyAnId) {
  const mdev::VgpuType nameless = type_called("nvidia-1153", "nvidia-1153");
  mdev::VgpuInventory inventory = one_gpu(board(0x26b9), nameless);
  fill_in(inventory.gpus);
  const mdev::VgpuType& type = inventory.gpus[0].parents[0].types[0];
  EXPECT_EQ(type.name, "NVIDIA L40S-12Q");
  EXPECT_EQ(type.short_name, "L40S-12Q");
  EXPECT_EQ(type.framebuffer_mib, 12288U);
  EXPECT_TRUE(type.framebuffer_by_name);
  EXPECT_EQ(type.max_instances, 4U);
  EXPECT_EQ(inventory.gpus[0].devices[0].type_name, "NVIDIA L40S-12Q");
  EXPECT_EQ(inventory.gpus[0].devices[0].short_name, "L40S-12Q");
}

TEST(FillIn, LeavesAnIdThatIsNotTheBoardsAsItIs) {
  // 1153 is a number of the L40S: another board's table is never asked.
  const mdev::VgpuType nameless = type_called("nvidia-1153", "nvidia-1153");
  mdev::VgpuInventory inventory = one_gpu(board(0x233b), nameless);
  fill_in(inventory.gpus);
  EXPECT_EQ(inventory.gpus[0].parents[0].types[0].name, "nvidia-1153");
  EXPECT_EQ(inventory.gpus[0].devices[0].type_name, "nvidia-1153");
}

TEST(FillIn, NeverOverridesWhatTheDriverSays) {
  mdev::VgpuType said = type_called("nvidia-1153", "NVIDIA L40S-24Q");
  said.max_instances = 9;
  said.framebuffer_mib = 24000;
  mdev::VgpuInventory inventory = one_gpu(board(0x26b9), said);
  fill_in(inventory.gpus);
  const mdev::VgpuType& type = inventory.gpus[0].parents[0].types[0];
  EXPECT_EQ(type.name, "NVIDIA L40S-24Q");
  EXPECT_EQ(type.max_instances, 9U);
  EXPECT_EQ(type.framebuffer_mib, 24000U);
  EXPECT_FALSE(type.framebuffer_by_name);
  EXPECT_EQ(inventory.gpus[0].devices[0].type_name, "NVIDIA L40S-24Q");
}

TEST(FillIn, GoesByTheNameWhereThereIsOne) {
  // The number of another type: NVIDIA promises nothing about numbers.
  const mdev::VgpuType named = type_called("nvidia-1153", "NVIDIA L40S-24Q");
  mdev::VgpuInventory inventory = one_gpu(board(0x26b9), named);
  fill_in(inventory.gpus);
  EXPECT_EQ(inventory.gpus[0].parents[0].types[0].framebuffer_mib, 24576U);
  EXPECT_EQ(inventory.gpus[0].parents[0].types[0].max_instances, 2U);
}

TEST(FillIn, BoundsATypeWithoutAMaximumByTheFramebuffer) {
  // L40S: 48 GiB. The table has maxima of series Q alone.
  const auto most = [](const char* name) {
    mdev::VgpuInventory inventory = one_gpu(board(0x26b9), type_called("7", name));
    inventory.gpus[0].framework = &mdev::vendor_vfio();
    inventory.gpus[0].parents.resize(4);
    fill_in(inventory.gpus);
    return inventory.gpus[0].parents[0].types[0].max_instances;
  };
  EXPECT_EQ(most("NVIDIA L40S-48A"), 1U);
  EXPECT_EQ(most("NVIDIA L40S-24A"), 2U);
  EXPECT_EQ(most("NVIDIA L40S-12A"), 4U);
  EXPECT_EQ(most("NVIDIA L40S-12Q"), 4U);
}

TEST(FillIn, IsPartOfEveryLook) {
  test::GpuNode node;
  const mdev::VgpuInventory inventory = node.snapshot().inventory;
  for (const mdev::VgpuType& type : inventory.gpus[0].parents[0].types) {
    EXPECT_TRUE(type.framebuffer_mib.has_value()) << type.name;
  }
}

}  // namespace
}  // namespace ferry::vgpu
