// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/gpu_facts.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostfs/stuck_writes.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

using test::must;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// ---- what the kernel writes

TEST(ErrorCounts, AreSplitAtTheLastSpace) {
  const ErrorCounts counts = parse_error_counts(
      "Receiver Error 2\nBadTLP 0\nTimeout 18446744073709551615\n"
      "TOTAL_ERR_COR 7");
  EXPECT_EQ(counts.total, 7U);
  EXPECT_THAT(counts.counts, ElementsAre(Pair("BadTLP", 0), Pair("Receiver Error", 2),
                                         Pair("Timeout", 18446744073709551615ULL)));
}

TEST(ErrorCounts, OfWhatIsNoSuchLineAreNone) {
  for (const char* bad : {"", "\n\n", "RxErr", "RxErr ", " 1", "RxErr -1", "RxErr 1x", "RxErr 0x1",
                          "RxErr 18446744073709551616",
                          ("Rx\x01"
                           "Err 1"),
                          "TOTAL_ERR_COR x", "AnErrorWithANameThatNoKernelHasEver 1"}) {
    const ErrorCounts counts = parse_error_counts(bad);
    EXPECT_EQ(counts.total, std::nullopt) << bad;
    EXPECT_THAT(counts.counts, IsEmpty()) << bad;
  }
}

TEST(ErrorCounts, HaveNoMoreKindsThanThereAre) {
  std::string text;
  for (int i = 0; i < 1'000; ++i) text += "Kind" + std::to_string(i) + " 1\n";
  const ErrorCounts counts = parse_error_counts(text + "TOTAL_ERR_FATAL 1000\n");
  EXPECT_EQ(counts.counts.size(), 32U);
  EXPECT_EQ(counts.total, 1'000U);
}

TEST(LinkSpeed, IsInTransfersPerSecond) {
  for (const auto& [text, speed] :
       {std::pair{"16.0 GT/s PCIe", 16e9}, {"8 GT/s", 8e9}, {"2.5 GT/s PCIe", 2.5e9}})
    EXPECT_EQ(parse_link_speed(text), speed) << text;
  for (const char* bad : {"", "Unknown", "Unknown speed", "GT/s", " GT/s", "x GT/s", "16.0", "16.0GT/s",
                          "-8 GT/s", "0 GT/s", "nan GT/s", "inf GT/s", "1e300 GT/s", "8 8 GT/s"})
    EXPECT_EQ(parse_link_speed(bad), std::nullopt) << bad;
}

// ---- what is read of a host

class GpuFactsTest : public testing::Test {
 protected:
  GpuFactsTest() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_driver({.name = "nouveau"});
    kernel_.add_driver({.name = "snd_hda_intel"});
  }
  void add_gpu(const std::string& audio_driver = "vfio-pci") {
    kernel_.add_function({.address = "0000:3b:00.0", .group = 17, .driver = "vfio-pci", .numa_node = 1});
    kernel_.add_function({.address = "0000:3b:00.1",
                          .ids = "10de:22ba",
                          .class_code = 0x040300,
                          .group = 17,
                          .driver = audio_driver});
    attribute("power_state", "D0");
    attribute("power/runtime_status", "active");
    attribute("current_link_speed", "2.5 GT/s PCIe");
    attribute("max_link_speed", "16.0 GT/s PCIe");
    attribute("current_link_width", "8");
    attribute("max_link_width", "16");
  }
  void attribute(const std::string& name, const std::string& value) {
    kernel_.file("sys/devices/pci0000:00/0000:3b:00.0/" + name, value + "\n");
  }
  GpuFacts facts() const {
    const std::vector<vfio::PciAddress> gpus = {must(vfio::PciAddress::parse("0000:3b:00.0"))};
    return read_gpu_facts(kernel_, gpus).at(0);
  }

  test::FakeKernel kernel_;
};

TEST_F(GpuFactsTest, OfAGpuThatIsAwake) {
  add_gpu();
  const GpuFacts gpu = facts();
  EXPECT_FALSE(gpu.held);
  EXPECT_EQ(gpu.numa_node, 1);
  EXPECT_EQ(gpu.power_state, "D0");
  EXPECT_EQ(gpu.link.current_speed, 2.5e9);
  EXPECT_EQ(gpu.link.max_speed, 16e9);
  EXPECT_EQ(gpu.link.current_lanes, 8U);
  EXPECT_EQ(gpu.link.max_lanes, 16U);
  EXPECT_EQ(gpu.group_viable, true);
  EXPECT_THAT(gpu.errors, IsEmpty());  // not counted here, which is not zero
}

TEST_F(GpuFactsTest, ASleeperIsNotWoken) {
  add_gpu();
  for (const auto& [name, value] : {std::pair{"power_state", "D3hot"},
                                    {"power_state", "D3cold"},
                                    {"power/runtime_status", "suspended"}}) {
    attribute("power_state", "D0");
    attribute("power/runtime_status", "active");
    attribute(name, value);
    const GpuFacts gpu = facts();
    EXPECT_EQ(gpu.link.current_speed, std::nullopt) << value;
    EXPECT_EQ(gpu.link.max_lanes, std::nullopt) << value;
    EXPECT_EQ(gpu.group_viable, true) << value;
  }
}

TEST_F(GpuFactsTest, WhatTheKernelDoesNotKnowIsAbsent) {
  add_gpu();
  attribute("current_link_speed", "Unknown");
  attribute("current_link_width", "255");
  attribute("max_link_width", "0");
  const GpuFacts gpu = facts();
  EXPECT_EQ(gpu.link.current_speed, std::nullopt);
  EXPECT_EQ(gpu.link.current_lanes, std::nullopt);
  EXPECT_EQ(gpu.link.max_lanes, std::nullopt);
}

// A card of 16 lanes in a slot of 8 has all that it can have.
TEST(GpuLink, IsCapableOfWhatBothItsEndsAre) {
  const test::ScratchDirectory scratch;
  const std::string port = "sys/devices/pci0000:3a/0000:3a:00.0/";
  const std::string gpu = port + "0000:3b:00.0/";
  scratch.link("sys/bus/pci/devices/0000:3a:00.0", "../../../devices/pci0000:3a/0000:3a:00.0");
  scratch.link("sys/bus/pci/devices/0000:3b:00.0", "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0");
  const auto link = [&](const std::string& lanes, const std::string& speed) {
    scratch.file(gpu + "max_link_width", "16\n");
    scratch.file(gpu + "max_link_speed", "16.0 GT/s PCIe\n");
    scratch.file(port + "max_link_width", lanes + "\n");
    scratch.file(port + "max_link_speed", speed + "\n");
    const std::vector<vfio::PciAddress> gpus = {must(vfio::PciAddress::parse("0000:3b:00.0"))};
    const LinkNumbers of = read_gpu_facts(HostFs(scratch.path()), gpus).at(0).link;
    return std::pair(of.max_lanes, of.max_speed);
  };
  EXPECT_EQ(link("8", "8.0 GT/s PCIe"), std::pair(std::optional(8U), std::optional(8e9)));
  EXPECT_EQ(link("32", "32.0 GT/s PCIe"), std::pair(std::optional(16U), std::optional(16e9)));
  EXPECT_EQ(link("255", "Unknown"), std::pair(std::optional(16U), std::optional(16e9)));
}

TEST_F(GpuFactsTest, AGroupWithAnotherDriverIsNotViable) {
  add_gpu("snd_hda_intel");
  EXPECT_EQ(facts().group_viable, false);
}

// The alert that goes by it names a driver of the host's.
TEST_F(GpuFactsTest, ADeviceThatIsOffTheBusBlocksNoGroup) {
  add_gpu();
  kernel_.file("sys/devices/pci0000:00/0000:3b:00.0/config", std::string(64, '\xff'));
  EXPECT_EQ(facts().group_viable, true);
  kernel_.overwrite_id("0000:3b:00.1", "class", "no number\n");
  EXPECT_EQ(facts().group_viable, true);
}

TEST(GpuErrors, AreThoseOfBothEndsOfTheLink) {
  const test::ScratchDirectory scratch;
  const std::string port = "sys/devices/pci0000:3a/0000:3a:00.0";
  scratch.file(port + "/0000:3b:00.0/aer_dev_correctable", "BadTLP 3\nTOTAL_ERR_COR 3\n");
  scratch.file(port + "/0000:3b:00.0/aer_dev_fatal", "DLP 0\nTOTAL_ERR_FATAL 0\n");
  scratch.file(port + "/aer_dev_correctable", "TOTAL_ERR_COR 9\n");
  scratch.link("sys/bus/pci/devices/0000:3a:00.0", "../../../devices/pci0000:3a/0000:3a:00.0");
  scratch.link("sys/bus/pci/devices/0000:3b:00.0", "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0");
  const HostFs host(scratch.path());
  const std::vector<vfio::PciAddress> gpus = {must(vfio::PciAddress::parse("0000:3b:00.0")),
                                              must(vfio::PciAddress::parse("0000:3a:00.0"))};
  const auto facts = read_gpu_facts(host, gpus);
  std::vector<std::string> seen;
  for (const ReportedErrors& errors : facts.at(0).errors) {
    seen.push_back(std::string(errors.port) + " " + std::string(errors.severity) + " " +
                   std::to_string(errors.counts.total.value_or(0)));
  }
  EXPECT_THAT(seen, ElementsAre("device correctable 3", "device fatal 0", "upstream correctable 9"));
  EXPECT_EQ(facts.at(1).errors.size(), 1U);  // on its root's bus: nothing is above it
}

TEST_F(GpuFactsTest, NothingIsReadOfAGpuThatAWriteHolds) {
  add_gpu();
  must(record_stuck_write(kernel_, 4711, "write /sys/bus/pci/drivers/nouveau/unbind", "0000:3b:00.0"));
  const GpuFacts gpu = facts();
  EXPECT_TRUE(gpu.held);
  EXPECT_EQ(gpu.power_state, std::nullopt);
  EXPECT_EQ(gpu.link.max_speed, std::nullopt);
  EXPECT_EQ(gpu.group_viable, std::nullopt);
}

TEST_F(GpuFactsTest, OfAGpuThatIsGoneNothingIsKnown) {
  const GpuFacts gpu = facts();
  EXPECT_FALSE(gpu.held);
  EXPECT_EQ(gpu.numa_node, std::nullopt);
  EXPECT_EQ(gpu.group_viable, std::nullopt);
  EXPECT_THAT(gpu.errors, IsEmpty());
}

}  // namespace
}  // namespace ferry::agent
