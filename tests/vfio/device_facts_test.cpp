// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/device_facts.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

const std::string kDirectory = "sys/devices/pci0000:00/0000:0a:00.0/";

class DeviceFactsTest : public testing::Test {
 protected:
  DeviceFactsTest() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function({.address = "0000:0a:00.0", .ids = "10de:2330", .class_code = 0x030200, .group = 7});
  }
  // Everything that a recent kernel shows of a data centre GPU.
  void show_everything() {
    for (const auto& [name, content] : std::initializer_list<std::pair<const char*, const char*>>{
             {"reset_method", "flr bus\n"},
             {"reset", ""},
             {"power_state", "D3hot\n"},
             {"d3cold_allowed", "1\n"},
             {"power/control", "auto\n"},
             {"power/runtime_status", "suspended\n"},
             {"current_link_speed", "2.5 GT/s PCIe\n"},
             {"max_link_speed", "32.0 GT/s PCIe\n"},
             {"current_link_width", "16\n"},
             {"max_link_width", "16\n"},
             {"numa_node", "1\n"},
             {"resource",
              "0x0000000091000000 0x0000000091ffffff 0x0000000000040200\n"
              "0x0000380000000000 0x0000381fffffffff 0x000000000014220c\n"
              "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
              "0x0000000000000000 0x0000000001ffffff 0x000000002014220c\n"
              "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
              "0x0000000000006000 0x000000000000607f 0x0000000000040101\n"
              "0x0000000092000000 0x000000009207ffff 0x0000000000046200\n"},
             {"resource1_resize", "00000000000fffc0\n"},
             {"rom", ""},
             {"serial_number", "00-11-22-33-44-55-66-77\n"}}) {
      kernel_.file(kDirectory + name, content);
    }
  }
  DeviceFacts facts() const { return read_device_facts(kernel_, at("0000:0a:00.0")); }
  FakeKernel kernel_;
};

TEST_F(DeviceFactsTest, AreAllThatTheKernelShows) {
  show_everything();
  const DeviceFacts facts = this->facts();
  EXPECT_THAT(facts.reset.methods, Optional(ElementsAre("flr", "bus")));
  EXPECT_EQ(facts.reset.offered, true);
  EXPECT_EQ(facts.power.state, "D3hot");
  EXPECT_EQ(facts.power.runtime_status, "suspended");
  EXPECT_EQ(facts.power.d3cold_allowed, true);
  EXPECT_EQ(facts.power.control, "auto");
  EXPECT_EQ(facts.link.current_speed, "2.5 GT/s PCIe");
  EXPECT_EQ(facts.link.max_speed, "32.0 GT/s PCIe");
  EXPECT_EQ(facts.link.current_width, 16U);
  EXPECT_EQ(facts.link.max_width, 16U);
  EXPECT_EQ(facts.numa_node, 1);
  const auto bars = facts.bars.value_or(std::vector<Bar>{});
  ASSERT_EQ(bars.size(), 4U);
  EXPECT_EQ(bars.at(0), (Bar{.index = 0, .start = 0x91000000, .size = 16U << 20U, .flags = 0x40200}));
  EXPECT_EQ(bars.at(1).size, 128ULL << 30U);
  EXPECT_TRUE(bars.at(1).is_64bit() && bars.at(1).is_prefetchable());
  EXPECT_TRUE(bars.at(1).is_memory() && bars.at(1).is_assigned());
  EXPECT_EQ(bars.at(2).index, 3U);
  EXPECT_FALSE(bars.at(2).is_assigned());
  EXPECT_TRUE(bars.at(3).is_io() && !bars.at(3).is_memory());
  EXPECT_FALSE(bars.at(3).is_64bit() || bars.at(3).is_prefetchable());
  ASSERT_EQ(facts.resizable_bars.size(), 1U);
  EXPECT_EQ(facts.resizable_bars[0].index, 1U);
  EXPECT_EQ(facts.resizable_bars[0].sizes_mib.front(), 64U);
  EXPECT_EQ(facts.resizable_bars[0].sizes_mib.back(), 512U << 10U);
  EXPECT_EQ(facts.resizable_bars[0].sizes_mib.size(), 14U);
  EXPECT_EQ(facts.rom, true);
  EXPECT_EQ(facts.serial_number, "00-11-22-33-44-55-66-77");
  EXPECT_THAT(facts.notes, IsEmpty());
}

TEST_F(DeviceFactsTest, AreAbsentWhereTheKernelShowsNothing) {
  kernel_.remove(kDirectory + "numa_node");
  const DeviceFacts facts = this->facts();
  EXPECT_EQ(facts.reset.methods, std::nullopt);
  EXPECT_EQ(facts.reset.offered, false) << "that a file is not there is known";
  EXPECT_EQ(facts.power.state, std::nullopt);
  EXPECT_EQ(facts.power.runtime_status, std::nullopt);
  EXPECT_EQ(facts.power.d3cold_allowed, std::nullopt);
  EXPECT_EQ(facts.power.control, std::nullopt);
  EXPECT_EQ(facts.link.current_speed, std::nullopt);
  EXPECT_EQ(facts.link.max_speed, std::nullopt);
  EXPECT_EQ(facts.link.current_width, std::nullopt);
  EXPECT_EQ(facts.link.max_width, std::nullopt);
  EXPECT_EQ(facts.numa_node, std::nullopt);
  EXPECT_EQ(facts.bars, std::nullopt);
  EXPECT_THAT(facts.resizable_bars, IsEmpty());
  EXPECT_EQ(facts.rom, false);
  EXPECT_EQ(facts.serial_number, std::nullopt);
  EXPECT_EQ(facts.vfio.group_node, std::nullopt);
  EXPECT_EQ(facts.vfio.devices, std::nullopt);
  EXPECT_EQ(facts.vfio.cdev_node, std::nullopt);
  EXPECT_THAT(facts.notes, IsEmpty());
}

TEST_F(DeviceFactsTest, DistinguishAnEmptyListOfResetsFromNone) {
  kernel_.file(kDirectory + "reset_method", "\n");
  EXPECT_THAT(facts().reset.methods, Optional(IsEmpty()));
}

TEST_F(DeviceFactsTest, TakeWhatTheKernelCallsUnknownForAbsent) {
  kernel_.file(kDirectory + "numa_node", "-1\n");
  kernel_.file(kDirectory + "current_link_speed", "Unknown\n");
  kernel_.file(kDirectory + "max_link_speed", "Unknown speed\n");
  kernel_.file(kDirectory + "current_link_width", "0\n");
  kernel_.file(kDirectory + "max_link_width", "255\n");
  const DeviceFacts facts = this->facts();
  EXPECT_EQ(facts.numa_node, std::nullopt);
  EXPECT_EQ(facts.link.current_speed, std::nullopt);
  EXPECT_EQ(facts.link.max_speed, std::nullopt);
  EXPECT_EQ(facts.link.current_width, std::nullopt);
  EXPECT_EQ(facts.link.max_width, std::nullopt);
  EXPECT_THAT(facts.notes, IsEmpty());
}

TEST_F(DeviceFactsTest, NameVfioNodesOnlyWhereTheyAre) {
  kernel_.file("sys/devices/pci0000:00/0000:0a:00.0/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel_.write("sys/bus/pci/drivers/vfio-pci/bind", "0000:0a:00.0"));
  const VfioFacts bound = facts().vfio;
  EXPECT_EQ(bound.group_node, "/dev/vfio/7");
  EXPECT_THAT(bound.devices, Optional(ElementsAre("vfio0")));
  EXPECT_EQ(bound.cdev_node, std::nullopt) << "a kernel without cdev shows the name, and no node";

  kernel_.file("dev/vfio/devices/vfio0", "");
  EXPECT_EQ(facts().vfio.cdev_node, "/dev/vfio/devices/vfio0");

  kernel_.remove("dev/vfio/7");
  kernel_.directory("dev/vfio/7");
  EXPECT_EQ(facts().vfio.group_node, std::nullopt) << "a directory is no node";
  kernel_.file("dev/vfio/noiommu-7", "");
  EXPECT_EQ(facts().vfio.group_node, "/dev/vfio/noiommu-7");
}

TEST_F(DeviceFactsTest, OfAFunctionThatIsNotThereAreNone) {
  const DeviceFacts facts = read_device_facts(kernel_, at("0000:0c:00.0"));
  EXPECT_EQ(facts.reset.offered, std::nullopt);
  EXPECT_EQ(facts.rom, std::nullopt);
  EXPECT_EQ(facts.bars, std::nullopt);
  EXPECT_THAT(facts.notes, ElementsAre(HasSubstr("0000:0c:00.0")));
}

TEST_F(DeviceFactsTest, KnowIommufdByItsNode) {
  EXPECT_FALSE(has_iommufd(kernel_));
  kernel_.directory("dev/iommu");
  EXPECT_FALSE(has_iommufd(kernel_));
  kernel_.remove("dev/iommu");
  kernel_.file("dev/iommu", "");
  EXPECT_TRUE(has_iommufd(kernel_));
}

TEST_F(DeviceFactsTest, OfAMalformedTableAreTheLinesThatMakeSense) {
  kernel_.file(kDirectory + "resource",
               "0x91000000 0x91ffffff\n"
               "0x1000 0x1fff 0x200 0x0\n"
               "0x2000 0x1fff 0x200\n"
               "0x0 0xffffffffffffffff 0x200\n"
               "\n"
               "0x10000000000000000 0x10000000000000001 0x200\n");
  const DeviceFacts facts = this->facts();
  EXPECT_THAT(facts.bars,
              Optional(ElementsAre(Bar{.index = 1, .start = 0x1000, .size = 0x1000, .flags = 0x200})));
  EXPECT_THAT(facts.notes,
              ElementsAre("resource: line 1 is no address range", "resource: line 3 is no address range",
                          "resource: line 4 is no address range", "resource: line 5 is no address range",
                          "resource: line 6 is no address range"));
}

// One attribute that is not what the kernel writes: it alone is absent, and noted.
struct Malformed {
  std::string name;
  bool (*absent)(const DeviceFacts&);
  bool empty_is_fine = false;  ///< an empty file says something, or only its presence counts
};
void PrintTo(const Malformed& row, std::ostream* out) {
  *out << row.name;
}

class MalformedFact : public DeviceFactsTest, public testing::WithParamInterface<Malformed> {
 protected:
  void expect_absent(const char* how) const {
    const DeviceFacts facts = this->facts();
    EXPECT_TRUE(GetParam().absent(facts)) << how;
    EXPECT_THAT(facts.notes, Contains(HasSubstr(GetParam().name))) << how;
    EXPECT_TRUE(GetParam().name == "serial_number" || facts.serial_number) << how << ": the others are read";
    EXPECT_TRUE(GetParam().name == "reset_method" || facts.reset.methods) << how << ": the others are read";
  }
};

TEST_P(MalformedFact, IsAbsentAndNoted) {
  constexpr std::size_t kHuge = 1U << 20U;
  show_everything();
  const std::string path = kDirectory + GetParam().name;
  if (!GetParam().empty_is_fine) {
    kernel_.file(path, "");
    expect_absent("empty");
  }
  kernel_.file(path, std::string("\x00\xff\x1b[2J\x80", 7));
  expect_absent("binary");
  kernel_.file(path, std::string(kHuge, '1'));
  expect_absent("huge");
  kernel_.remove(path);
  kernel_.directory(path);
  expect_absent("a directory");
}

INSTANTIATE_TEST_SUITE_P(
    Table, MalformedFact,
    testing::Values(
        Malformed{"reset_method", [](const DeviceFacts& f) { return !f.reset.methods; }, true},
        Malformed{"power_state", [](const DeviceFacts& f) { return !f.power.state; }},
        Malformed{"d3cold_allowed", [](const DeviceFacts& f) { return !f.power.d3cold_allowed; }},
        Malformed{"power/control", [](const DeviceFacts& f) { return !f.power.control; }},
        Malformed{"power/runtime_status", [](const DeviceFacts& f) { return !f.power.runtime_status; }},
        Malformed{"current_link_speed", [](const DeviceFacts& f) { return !f.link.current_speed; }},
        Malformed{"max_link_speed", [](const DeviceFacts& f) { return !f.link.max_speed; }},
        Malformed{"current_link_width", [](const DeviceFacts& f) { return !f.link.current_width; }},
        Malformed{"max_link_width", [](const DeviceFacts& f) { return !f.link.max_width; }},
        Malformed{"numa_node", [](const DeviceFacts& f) { return !f.numa_node; }},
        Malformed{"resource", [](const DeviceFacts& f) { return !f.bars || f.bars->empty(); }, true},
        Malformed{"resource1_resize", [](const DeviceFacts& f) { return f.resizable_bars.empty(); }},
        Malformed{"serial_number", [](const DeviceFacts& f) { return !f.serial_number; }}),
    [](const auto& row) {
      std::string name = row.param.name;
      std::replace(name.begin(), name.end(), '/', '_');
      return name;
    });

// Files of which only the presence counts.
TEST_F(DeviceFactsTest, ADirectoryIsNoResetAndNoRom) {
  kernel_.directory(kDirectory + "reset");
  kernel_.directory(kDirectory + "rom");
  EXPECT_EQ(facts().reset.offered, false);
  EXPECT_EQ(facts().rom, false);
  kernel_.file(kDirectory + "vfio-dev", "");
  EXPECT_EQ(facts().vfio.devices, std::nullopt);
  EXPECT_THAT(facts().notes, ElementsAre(HasSubstr("vfio-dev")));
}

}  // namespace
}  // namespace ferry::vfio
