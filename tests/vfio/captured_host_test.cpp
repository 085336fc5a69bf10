// SPDX-License-Identifier: Apache-2.0
// Real hosts, as their kernels showed themselves: tests/fixtures/hosts.
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"
#include "tests/vfio/machines.h"
#include "vfio/device_facts.h"
#include "vfio/inventory.h"
#include "vfio/passthrough_checks.h"

namespace ferry {
namespace {

using test::at;
using test::must;
using testing::ElementsAre;
using testing::Optional;

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    ++i;
    if (text.at(i) == 'x') {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text.at(i) == 'n' ? '\n' : '\t';
    }
  }
  return out;
}

/// One of them, on disk. The format is in the first lines of each file.
class CapturedHost : public HostFs {
 public:
  explicit CapturedHost(const std::string& name) : CapturedHost(std::make_unique<test::ScratchDirectory>()) {
    std::ifstream file(std::string(FERRY_HOSTS) + "/" + name);
    if (!file) throw std::runtime_error("no such host: " + name);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with('#')) continue;
      if (const auto arrow = line.find(" -> "); arrow != std::string::npos) {
        directory_->link(line.substr(0, arrow), line.substr(arrow + 4));
      } else if (const auto equals = line.find(" = "); equals != std::string::npos) {
        directory_->file(line.substr(0, equals), unescaped(std::string_view(line).substr(equals + 3)));
      } else {
        directory_->directory(line);
      }
    }
  }

 private:
  explicit CapturedHost(std::unique_ptr<test::ScratchDirectory> directory)
      : HostFs(directory->path()), directory_(std::move(directory)) {}

  std::unique_ptr<test::ScratchDirectory> directory_;
};

TEST(CapturedHostTest, AVirtualMachineWithOneGpuOfItsOwn) {
  const CapturedHost host("h200-in-a-vm");
  const Inventory inventory = must(scan(host));
  EXPECT_EQ(inventory.functions.size(), 7U);
  EXPECT_TRUE(inventory.groups.empty());

  const PciFunction* gpu = inventory.find(at("0000:00:06.0"));
  ASSERT_NE(gpu, nullptr);
  EXPECT_TRUE(test::gpu_rules().match(*gpu));
  EXPECT_EQ(gpu->device, 0x2335);
  EXPECT_THAT(gpu->subsystem_device, Optional(0x18bf));
  EXPECT_THAT(gpu->driver, Optional(std::string("nvidia")));
  EXPECT_EQ(gpu->sriov_totalvfs, 0U);
  EXPECT_FALSE(gpu->problem);

  const DeviceFacts facts = read_device_facts(host, gpu->address);
  EXPECT_THAT(facts.reset.methods, Optional(ElementsAre("flr")));
  EXPECT_THAT(facts.link.current_width, Optional(16U));
  const std::vector<Bar> bars = facts.bars.value_or(std::vector<Bar>{});
  ASSERT_EQ(bars.size(), 3U);
  constexpr std::uint64_t kFramebuffer = 256ULL << 30;  // 141 GB of memory behind 256 GiB of addresses
  EXPECT_EQ(bars[1].size, kFramebuffer);
  EXPECT_THAT(facts.notes, testing::IsEmpty());
}

TEST(CapturedHostTest, SaysWhatAVirtualMachineLacks) {
  const CapturedHost host("h200-in-a-vm");
  std::map<std::string, std::string> failed;
  for (const Check& check : passthrough_checks(host, must(scan(host)), test::gpu_rules())) {
    if (check.verdict == Verdict::fail) failed.emplace(check.id, check.subject);
  }
  EXPECT_THAT(failed, testing::Contains(testing::Key("iommu-active")));
  EXPECT_THAT(failed, testing::Contains(testing::Pair("in-iommu-group", testing::HasSubstr("0000:00:06.0"))));
  EXPECT_THAT(failed, testing::Not(testing::Contains(testing::Key("bars-assigned"))));
}

}  // namespace
}  // namespace ferry
