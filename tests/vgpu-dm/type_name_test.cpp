// SPDX-License-Identifier: Apache-2.0
#include <ostream>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/mig_node.h"
#include "vgpu-dm/types/type_names.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::message_of;
using test::MigNode;
using test::must;
using test::on;
using testing::HasSubstr;
using testing::IsEmpty;

struct Good {
  const char* text;
  const char* board;
  std::optional<std::uint32_t> slices;
  std::uint32_t size;
  char series;
  const char* attribute;
  const char* driver_short_name;
};
void PrintTo(const Good& row, std::ostream* out) {
  *out << row.text;
}

class GoodTypeName : public testing::TestWithParam<Good> {};

TEST_P(GoodTypeName, IsTakenApartAndPutTogether) {
  const Good& row = GetParam();
  const auto name = VgpuTypeName::parse(row.text);
  ASSERT_TRUE(name) << name.error().message;
  EXPECT_EQ(name->board, row.board);
  EXPECT_EQ(name->slices, row.slices);
  EXPECT_EQ(name->size_gib, row.size);
  EXPECT_EQ(name->series, row.series);
  EXPECT_EQ(name->attribute, row.attribute);
  EXPECT_EQ(name->text(), row.text);
  EXPECT_EQ(name->driver_short_name(), row.driver_short_name);
}

INSTANTIATE_TEST_SUITE_P(
    Table, GoodTypeName,
    testing::Values(Good{"T4-1Q", "T4", {}, 1, 'Q', "", "T4-1Q"},
                    Good{"M60-0Q", "M60", {}, 0, 'Q', "", "M60-0Q"},
                    Good{"L40S-48A", "L40S", {}, 48, 'A', "", "L40S-48A"},
                    Good{"RTX6000-Ada-24Q", "RTX6000-Ada", {}, 24, 'Q', "", "RTX6000-Ada-24Q"},
                    Good{"X-a-B-Cd-8B", "X-a-B-Cd", {}, 8, 'B', "", "X-a-B-Cd-8B"},
                    Good{"H200-70C", "H200", {}, 70, 'C', "", "H200-70C"},
                    Good{"H200-3-71C", "H200", 3, 71, 'C', "", "H200-3-71C"},
                    Good{"A100-1-5CME", "A100", 1, 5, 'C', "ME", "A100-1-5CME"},
                    Good{"A100-1-5CNOME", "A100", 1, 5, 'C', "NOME", "A100-1-5C"},
                    Good{"A100-1-5CMEALL", "A100", 1, 5, 'C', "MEALL", "A100-1-5C"},
                    Good{"DC-2-48QGFX", "DC", 2, 48, 'Q', "GFX", "DC-2-48Q"},
                    Good{"6000D-1-42C", "6000D", 1, 42, 'C', "", "6000D-1-42C"},
                    Good{"1002:75b3", "1002:75b3", {}, 0, 'Q', "", "1002:75b3"}));

class BadTypeName : public testing::TestWithParam<const char*> {};

TEST_P(BadTypeName, IsRefused) {
  const auto name = VgpuTypeName::parse(GetParam());
  ASSERT_FALSE(name);
  EXPECT_EQ(name.error().code, Errc::invalid_config);
  EXPECT_EQ(name.error().message, std::string("'") + GetParam() + "' is not the name of a vGPU type");
  EXPECT_NE(name.error().hint, "");
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadTypeName,
    testing::Values("", "T4", "T4-", "T4-Q", "T4-1q", "t4-1Q", "T4-1D", "T4-01Q", "T4-1 Q", " T4-1Q",
                    "T4-1Q ", "T4 -1Q", "GRID T4-1Q", "3060", "-1Q", "RTX6000-Ada2-24Q", "RTX6000-Ada-1-24Q",
                    "A100-0-5C", "A100-10-5C", "A100-1-05C", "A100-1-5CXX", "A100-1-5CMEX", "T4-1QGFX",
                    "T4-1QME", "H100-1-10C-ME", "T4-99999999999Q", "T4-1.5Q", "T4--1Q", "nvidia-230",
                    "1002:75B3", "1002:75b", "75b3", "1002:75b3-1Q",
                    "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMN-1Q"));

TEST(TypeNameOfDriversOnly, IsRefusedAsOne) {
  for (const char* text : {"T4-1", "L40S-48", "NVIDIA L40S-48", "T4-2B4", "P40-1B4", "L40S-12Q4", "DC-2-48",
                           "5880-Ada-48", "RTX6000-Ada-24Q1"}) {
    const auto name = VgpuTypeName::parse(text);
    ASSERT_FALSE(name) << text;
    EXPECT_EQ(name.error().code, Errc::invalid_config) << text;
    EXPECT_EQ(name.error().message,
              std::string("no file can name the vGPU type '") + text + "', although a driver may have it");
    EXPECT_NE(name.error().hint, "") << text;
  }
}

TEST(MigBackedTypes, AreThoseThatTheirNameOrTheTableTells) {
  const auto is_one = [](std::string short_name, std::string mig_profile = {}) {
    mdev::VgpuType type;
    type.short_name = std::move(short_name);
    type.mig_profile = std::move(mig_profile);
    return is_mig_backed(type);
  };
  for (const char* name : {"H100-1-10C", "A100-1-5CME", "DC-2-48Q", "DC-2-48"})
    EXPECT_TRUE(is_one(name)) << name;
  for (const char* name : {"L40S-12Q", "RTX6000-Ada-24Q", "T4-2B4", "3050", "1002:75b3"})
    EXPECT_FALSE(is_one(name)) << name;
  EXPECT_TRUE(is_one("3050", "1g.24gb+gfx"));
}

std::vector<mdev::VgpuType> types_named(const std::vector<std::string>& names) {
  std::vector<mdev::VgpuType> out;
  out.reserve(names.size());
  for (const std::string& name : names) {
    out.push_back({.id = "nvidia-" + std::to_string(out.size()),
                   .name = "NVIDIA " + name,
                   .short_name = name,
                   .available = 1,
                   .max_instances = {},
                   .framebuffer_mib = {}});
  }
  return out;
}

std::string found(const char* name, const std::vector<std::string>& names) {
  const auto types = types_named(names);
  const auto type = find_type(VgpuTypeName::parse(name).value(), types);
  if (!type) return type.error().message;
  return *type == nullptr ? "(none)" : (*type)->short_name;
}

TEST(AvailableType, IsFoundByWhatItsNameMeans) {
  EXPECT_EQ(found("DC-2-48QGFX", {"DC-2-48C", "DC-2-48Q"}), "DC-2-48Q");
  EXPECT_EQ(found("A100-1-5CNOME", {"A100-1-5C", "A100-1-5CME"}), "A100-1-5C");
  EXPECT_EQ(found("A100-1-5CMEALL", {"A100-1-5C", "A100-1-5CME"}), "A100-1-5C");
  EXPECT_EQ(found("T4-2Q", {"T4-1Q", "T4-2B4", "T4-2Q"}), "T4-2Q");
}

TEST(AvailableType, IsTheExactOneWhereBothAreThere) {
  EXPECT_EQ(found("DC-2-48QGFX", {"DC-2-48Q", "DC-2-48QGFX"}), "DC-2-48QGFX");
}

TEST(AvailableType, IsNeverAnotherKindForTheSakeOfMe) {
  EXPECT_EQ(found("A100-1-5CME", {"A100-1-5C"}), "(none)");
  EXPECT_EQ(found("A100-1-5C", {"A100-1-5CME"}), "(none)");
}

TEST(AvailableType, IsNotGuessedWhereTwoHaveTheName) {
  const auto types = types_named({"DC-16Q", "DC-8Q", "DC-16Q"});
  const auto type = find_type(VgpuTypeName::parse("DC-16Q").value(), types);
  ASSERT_FALSE(type);
  EXPECT_EQ(type.error().code, Errc::unsupported);
  EXPECT_EQ(type.error().message, "DC-16Q may be NVIDIA DC-16Q (nvidia-0) or NVIDIA DC-16Q (nvidia-2)");
}

// Made by somebody else, or before the file of names was there: a full GPU lists none.
TEST(TypeNames, AreAskedOfTheLibrary) {
  const auto fill = [](MigNode& node) {
    node.make("{H200X-70C: 2}");
    node.kernel.remove("run/ferry/hostd/vgpu-type-names.json");
  };
  MigNode without;
  fill(without);
  without.with_library = false;
  EXPECT_THAT(message_of(without.apply(on("[0]", "{H200X-70C: 2}")).error), HasSubstr("cannot tell whether"));

  MigNode node;
  fill(node);
  EXPECT_EQ(node.apply(on("[0]", "{H200X-70C: 2}")).kind, Kind::already_so);
  node.with_library = false;
  EXPECT_EQ(node.apply(on("[0]", "{H200X-70C: 2}")).kind, Kind::already_so) << "its answer is kept";
  EXPECT_EQ(node.apply(on("[0]", "{H200X-70C: 1}")).kind, Kind::changed);
}

// Releases of the driver call number 1414 differently.
TEST(TypeNames, OfTheLibraryGoBeforeTheTables) {
  MigNode node;
  node.make("{H200X-1-18C: 7}");
  mdev::VgpuGpu gpu = must(look(node.host())).inventory.gpus.at(0);
  for (mdev::VgpuParent& parent : gpu.parents) parent.types.clear();
  mdev::ManagedGpu said;
  said.types = {{.id = 1414, .name = "NVIDIA H200X-1-17C", .framebuffer = 0}};
  EXPECT_FALSE(driver_lists_no_name(node.kernel, gpu));
  name_by_library(node.kernel, said, gpu);
  EXPECT_EQ(gpu.devices.at(0).short_name, "H200X-1-18C") << "the driver's own word is kept";
  node.kernel.remove("run/ferry/hostd/vgpu-type-names.json");
  EXPECT_TRUE(driver_lists_no_name(node.kernel, gpu));
  name_by_library(node.kernel, said, gpu);
  EXPECT_EQ(gpu.devices.at(0).short_name, "H200X-1-17C");
  EXPECT_EQ(gpu.devices.at(0).type_name, "NVIDIA H200X-1-17C");
}

TEST(TypeNames, StayWhileTheBootCannotBeRead) {
  constexpr const char* kNames = "run/ferry/hostd/vgpu-type-names.json";
  MigNode node;
  node.make("{H200X-1-18C: 7}");
  const std::string kept = must(node.kernel.read_file(kNames));
  mdev::VgpuGpu gpu = must(look(node.host())).inventory.gpus.at(0);
  gpu.parents.at(0).types = {{.id = "7", .name = "NVIDIA H200X-7C", .short_name = "H200X-7C"}};
  node.kernel.remove("proc/sys/kernel/random/boot_id");
  EXPECT_FALSE(remember_names(node.kernel, {&gpu, 1}));
  EXPECT_EQ(must(node.kernel.read_file(kNames)), kept);
}

// A name of the table, or none, would count as the driver's own until the reboot.
TEST(TypeNames, AreKeptOnlyFromTheLibrary) {
  MigNode node;
  const Profile full = on("[0]", "{H200X-1-18C: 7}");
  node.make("{H200X-1-18C: 7}");
  node.kernel.remove("run/ferry/hostd/vgpu-type-names.json");
  mdev::VgpuGpu gpu = must(look(node.host())).inventory.gpus.at(0);
  ASSERT_EQ(gpu.devices.at(0).short_name, "H200X-1-18C") << "by the table";
  mdev::ManagedGpu said;
  said.types = {{.id = 1414, .name = "", .framebuffer = 0}};
  EXPECT_THAT(name_by_library(node.kernel, said, gpu), IsEmpty());
  EXPECT_EQ(gpu.devices.at(0).short_name, "H200X-1-18C");
  for (const bool knows : {false, true}) {
    node.mig.knows_types = knows;
    EXPECT_EQ(node.apply(full).kind, Kind::already_so);
    EXPECT_NE(driver_lists_no_name(node.kernel, gpu), knows);
  }
}

}  // namespace
}  // namespace ferry::vgpu
