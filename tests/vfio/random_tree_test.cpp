// SPDX-License-Identifier: Apache-2.0
// Hosts on which anything that Ferry reads may be anything: never a crash, never a write outside the places
// it says it writes to, and a device that is in order is seen and can be bound whatever the others are like.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <random>

#include <gmock/gmock.h>

#include "tests/vfio/machines.h"
#include "vfio/checks/passthrough_checks.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/pci/device_facts.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;

namespace fs = std::filesystem;

constexpr const char* kSound = "0000:0a:00.0";  // nothing of it, of its group or of its driver is harmed

unsigned number_from(const char* variable, unsigned usual) {
  const char* const desired = std::getenv(variable);
  if (desired != nullptr) std::from_chars(desired, desired + std::string_view(desired).size(), usual);
  return usual;
}

class RandomHost {
 public:
  explicit RandomHost(unsigned seed) : random_(seed) {
    test::add_host_drivers(kernel);
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "amdgpu", .ids = {"10de:9999"}});
    test::add_four_function_card(kernel);
    kernel.add_function({.address = kSound, .ids = "10de:9999", .group = 10, .driver = "amdgpu"});
    kernel.add_function({.address = "0000:0b:00.0", .group = 11, .driver = "nouveau", .totalvfs = 4});
    const auto harms = 1 + below(6);
    for (unsigned i = 0; i < harms; ++i) {
      try {
        harm();
      } catch (const std::exception&) {
        // One harm can be in the way of the next: a file where its directory was.
      }
    }
  }
  FakeKernel kernel;

 private:
  unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }

  fs::path victim() {
    constexpr std::array kAddresses = {"0000:65:00.0", "0000:65:00.1", "0000:65:00.2",
                                       "0000:65:00.3", "0000:64:00.0", "0000:0b:00.0"};
    constexpr std::array kFiles = {"vendor",
                                   "device",
                                   "class",
                                   "subsystem_vendor",
                                   "subsystem_device",
                                   "modalias",
                                   "config",
                                   "driver_override",
                                   "numa_node",
                                   "driver",
                                   "iommu_group",
                                   "physfn",
                                   "boot_vga",
                                   "sriov_totalvfs",
                                   "sriov_numvfs",
                                   "resource",
                                   "resource1_resize",
                                   "rom",
                                   "reset_method",
                                   "power_state",
                                   "current_link_speed",
                                   "vfio-dev",
                                   "consumer:pci:0000:65:00.1",
                                   "drm",
                                   "net",
                                   "usb1",
                                   ""};
    constexpr std::array kElsewhere = {"sys/kernel/iommu_groups/41/devices",
                                       "sys/kernel/iommu_groups/41",
                                       "sys/bus/pci/drivers/nouveau",
                                       "sys/bus/pci/drivers/snd_hda_intel/unbind",
                                       "sys/bus/pci/devices/0000:65:00.1",
                                       "sys/bus/pci/devices/nonsense",

                                       "proc/iomem",
                                       "proc/cmdline",
                                       "sys/module/vfio_pci/drivers"};
    if (below(5) == 0) return kElsewhere.at(below(kElsewhere.size()));
    const fs::path device = fs::path("sys/devices/pci0000:00") / kAddresses.at(below(kAddresses.size()));
    const std::string_view file = kFiles.at(below(kFiles.size()));
    return file.empty() ? device : device / file;
  }
  std::string content() {
    constexpr std::array kTexts = {"",
                                   "\n",
                                   "0x",
                                   "0x10de",
                                   "-1",
                                   "99999999999999999999",
                                   "0000:65:00.0",
                                   "../../../../../../etc/passwd",
                                   "(null)",
                                   "vfio-pci",
                                   "a b\tc",
                                   "0xffffff\n\n"};
    const auto kind = below(kTexts.size() + 2);
    if (kind < kTexts.size()) return kTexts.at(kind);
    std::string noise(kind == kTexts.size() ? below(70) : 70000, '\0');
    std::ranges::generate(noise, [this] { return static_cast<char>(random_()); });
    return noise;
  }
  void harm() {
    const fs::path path = victim();
    const auto kind = below(5);
    kernel.remove(path);
    constexpr std::array<std::string_view, 5> kInModalias = {"vendor", "device", "class", "subsystem_vendor",
                                                             "subsystem_device"};
    // What its modalias says is read nowhere else.
    if (std::ranges::find(kInModalias, path.filename()) != kInModalias.end() && below(2) == 0)
      kernel.remove(path.parent_path() / "modalias");
    if (kind == 0) return;  // not there
    if (kind == 1) return kernel.directory(path);
    if (kind == 2) {
      constexpr std::array kTargets = {"/etc/passwd",
                                       "..",
                                       ".",
                                       "../0000:65:00.0",
                                       "/",
                                       "no/such/thing",
                                       "../../../../../../../../../../tmp",
                                       "../../../bus/pci/drivers/nouveau"};
      return kernel.link(path, kTargets.at(below(kTargets.size())));
    }
    kernel.file(path, content());
  }

  std::mt19937 random_;
};

bool is_ours_to_write(const std::string& path) {
  const std::string name = path.starts_with("remove ") ? path.substr(7) : path;
  if (fs::path(name).lexically_normal() != fs::path(name)) return false;
  return name == "module" || name == "sys/bus/pci/drivers_probe" || name.starts_with("run/ferry/") ||
         (name.starts_with("sys/bus/pci/drivers/") &&
          (name.ends_with("/bind") || name.ends_with("/unbind"))) ||
         (name.starts_with("sys/bus/pci/devices/") && name.ends_with("/driver_override"));
}

TEST(RandomTrees, HarmNobodyButThemselves) {
  const unsigned first = number_from("FERRY_RANDOM_TREES_FROM", 0);
  const unsigned count = number_from("FERRY_RANDOM_TREES", 2000);
  for (unsigned seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    RandomHost host(seed);
    FakeKernel& kernel = host.kernel;
    auto inventory = scan(kernel);
    ASSERT_TRUE(inventory);
    read_unit_facts(kernel, test::gpu_rules(), *inventory);
    const PciFunction* sound = inventory->find(at(kSound));
    ASSERT_NE(sound, nullptr);
    EXPECT_FALSE(sound->problem);

    const AcceleratorRules rules = test::gpu_rules();
    RebindRequest request;
    for (const auto& [address, function] : inventory->functions) {
      (void)read_device_facts(kernel, address);
      if (rules.match(function)) request.accelerators.push_back(address);
    }
    (void)passthrough_checks(kernel, *inventory, rules, judge_all(*inventory, rules, {}, {}));

    test::TableProbe probe;
    const RebindContext context{
        .host = &kernel, .writer = &kernel, .probe = &probe, .rules = rules, .on_step = {}};
    for (const Direction direction : {Direction::to_vfio, Direction::back}) {
      const auto outcome = apply_rebinds(context, request, direction);
      ASSERT_TRUE(outcome) << outcome.error().message;
      const auto of_sound = std::ranges::find_if(outcome->results, [](const RebindResult& result) {
        return std::ranges::find(result.devices, at(kSound)) != result.devices.end();
      });
      ASSERT_NE(of_sound, outcome->results.end());
      EXPECT_EQ(of_sound->status, RebindResult::Status::done)
          << (of_sound->error ? of_sound->error->message : testing::PrintToString(of_sound->refusal.reasons));
    }
    EXPECT_EQ(kernel.driver_of(kSound), "amdgpu");
    for (const test::HostChange& change : kernel.changes())
      EXPECT_TRUE(is_ours_to_write(change.path)) << change;
    if (testing::Test::HasFailure()) return;  // the first one is reported; the others are of its kind
  }
}

}  // namespace
}  // namespace ferry::vfio
