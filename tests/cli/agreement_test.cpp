// SPDX-License-Identifier: Apache-2.0
// After every step of the demo (tests/node/scenarios/demo), which are made here on the fake kernel, each by
// what hostd would call for it: what metrics, `ferry status -o json` and feature labels say of the node, held
// against sysfs and the kubelet's books, and so against each other.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/labels/feature_labels.h"
#include "agent/metrics/metric_families.h"
#include "api/files.h"
#include "api/host_status.h"
#include "kubevirt-plugin/allocation/pod_resources.h"
#include "tests/cli/run_program.h"
#include "tests/kubevirt-plugin/plugin_fixture.h"
#include "tests/support/must.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vfio/bind/rebind_apply.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using test::at;
using test::must;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The demo's cards. The third shares its group with a display and a bridge that has a driver.
constexpr const char* kCard = "0000:02:00.0";
constexpr const char* kCardsAudio = "0000:02:00.1";
constexpr const char* kDriverless = "0000:03:00.0";
constexpr const char* kBlocked = "0000:05:01.0";
constexpr const char* kTesla = "0000:06:00.0";
constexpr const char* kCardResource = "nvidia.com/AD102_GEFORCE_RTX_4090";
constexpr const char* kVgpuResource = "nvidia.com/GRID_T4-4Q";

/// A GPU as one source tells it.
struct Reported {
  std::string driver = {};  ///< empty: none
  std::string mode = {};
  std::string group = {};
  bool viable = false;                    ///< its group could go to a VM
  std::map<std::string, int> vgpus = {};  ///< by type
  std::set<std::string> allocated = {};   ///< what of it pods have, by the kubelet's IDs
  std::string text() const {
    return fmt::format("{} in {} by '{}', {}, carries {}, {} given", mode, group, driver,
                       viable ? "viable" : "not viable", vgpus, allocated);
  }
};
using Node = std::map<std::string, Reported>;  // by address

using Differences = std::vector<std::string>;

Differences differences(const char* source, const Node& reported, const Node& truth) {
  Differences out;
  std::set<std::string> all;
  for (const Node* node : {&reported, &truth})
    for (const auto& [address, gpu] : *node) all.insert(address);
  for (const std::string& address : all) {
    const auto says = reported.find(address);
    const auto is = truth.find(address);
    const std::string said = says == reported.end() ? "nothing" : says->second.text();
    const std::string meant = is == truth.end() ? "nothing" : is->second.text();
    if (said != meant) out.push_back(fmt::format("{} of {}: {}; it is {}", source, address, said, meant));
  }
  return out;
}

// ---- sysfs, and the kubelet

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// What people and profiles call a type: "T4-4Q" of "GRID T4-4Q".
std::string short_type(const std::string& name) {
  return name.substr(name.rfind(' ') + 1);
}

std::string name_behind(const fs::path& link) {
  std::error_code none;
  return fs::read_symlink(link, none).filename();
}

/// Read here, by nothing of Ferry's.
Node look_at_sysfs(const fs::path& root, const std::set<std::string>& allocated) {
  Node out;
  const fs::path pci = root / "sys/bus/pci/devices";
  for (const auto& entry : fs::directory_iterator(pci)) {
    const std::string display = line_of(entry.path() / "class").substr(0, 6);
    if (line_of(entry.path() / "vendor") != "0x10de" || (display != "0x0300" && display != "0x0302"))
      continue;
    Reported gpu{.driver = name_behind(entry.path() / "driver"),
                 .group = name_behind(entry.path() / "iommu_group")};
    gpu.viable = true;
    for (const auto& member :
         fs::directory_iterator(root / "sys/kernel/iommu_groups" / gpu.group / "devices")) {
      const std::string driver = name_behind(pci / member.path().filename() / "driver");
      gpu.viable = gpu.viable && (driver.empty() || driver == "vfio-pci" || driver == "pcieport");
    }
    for (const auto& below : fs::directory_iterator(entry.path())) {
      const std::string type = line_of(below.path() / "mdev_type/name");
      if (!type.empty() && below.path().filename() != "mdev_supported_types") {
        ++gpu.vgpus[short_type(type)];
        if (allocated.contains(below.path().filename())) gpu.allocated.insert(below.path().filename());
      }
    }
    if (allocated.contains(entry.path().filename())) gpu.allocated.insert(entry.path().filename());
    gpu.mode = gpu.driver == "vfio-pci" ? "passthrough" : gpu.vgpus.empty() ? "host" : "vgpu";
    out[entry.path().filename()] = gpu;
  }
  return out;
}

// ---- status

Node reported_by_status(const json& document) {
  Node out;
  for (const json& gpu : document.at("accelerators")) {
    Reported reported{.driver = gpu.at("driver").is_null() ? "" : gpu.at("driver").get<std::string>(),
                      .mode = gpu.at("mode"),
                      .group = std::to_string(gpu.at("iommu_group").get<unsigned>()),
                      .viable = gpu.at("group_viable")};
    const auto note = [&reported](const json& advertised_as) {
      for (const json& advertised : advertised_as)
        if (advertised.at("allocated").get<bool>()) reported.allocated.insert(advertised.at("id"));
    };
    note(gpu.at("advertised"));
    for (const json& vgpu : gpu.at("vgpus")) {
      ++reported.vgpus[short_type(vgpu.at("type"))];
      note(vgpu.at("advertised"));
    }
    out[gpu.at("address")] = reported;
  }
  return out;
}

// ---- metrics

using Sample = std::map<std::string, std::string>;  // labels; the value under ""

std::vector<Sample> samples(const std::vector<prometheus::MetricFamily>& families, const std::string& name) {
  std::vector<Sample> out;
  for (const auto& family : families) {
    if (family.name != name) continue;
    for (const auto& metric : family.metric) {
      Sample sample{{"", fmt::format("{}", metric.gauge.value)}};
      for (const auto& label : metric.label) sample[label.name] = label.value;
      out.push_back(std::move(sample));
    }
  }
  return out;
}

Node reported_by_metrics(const std::vector<prometheus::MetricFamily>& families) {
  Node out;
  for (Sample& sample : samples(families, "ferry_gpu_info"))
    out[sample["pci_bus_id"]] = {
        .driver = sample["driver"], .mode = sample["mode"], .group = sample["iommu_group"]};
  for (Sample& sample : samples(families, "ferry_gpu_group_viable"))
    out[sample["pci_bus_id"]].viable = sample[""] == "1";
  for (Sample& sample : samples(families, "ferry_vgpu_instances"))
    out[sample["pci_bus_id"]].vgpus[sample["type"]] += std::stoi(sample[""]);
  for (Sample& sample : samples(families, "ferry_device_allocated"))
    if (sample[""] == "1") out[sample["pci_bus_id"]].allocated.insert(sample["device"]);
  return out;
}

// ---- numbers, which labels and metrics have

using Numbers = std::map<std::string, int>;

Numbers numbers_of(const Node& node) {
  Numbers out{
      {"all", static_cast<int>(node.size())}, {"mode host", 0}, {"mode passthrough", 0}, {"mode vgpu", 0}};
  for (const auto& [address, gpu] : node) {
    ++out["mode " + gpu.mode];
    ++out["driver " + (gpu.driver.empty() ? "none" : gpu.driver)];
  }
  return out;
}

Numbers reported_by_labels(const agent::Labels& labels) {
  // A number that is zero need not be said.
  Numbers out{{"all", 0}, {"mode host", 0}, {"mode passthrough", 0}, {"mode vgpu", 0}};
  const std::string end = ".count";
  for (const auto& [key, value] : labels) {
    if (key == "nvidia.com/gpu.count") out["all"] = std::stoi(value);
    for (const auto& [begin, kind] :
         {std::pair<std::string, std::string>{"gpu-ferry.io/gpu.driver.", "driver "},
          {"gpu-ferry.io/gpu.", "mode "}}) {
      if (!key.starts_with(begin) || !key.ends_with(end)) continue;
      out[kind + key.substr(begin.size(), key.size() - begin.size() - end.size())] = std::stoi(value);
      break;
    }
  }
  return out;
}

class Agreement : public plugin_test::Fixture {
 protected:
  Agreement() {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "bochs-drm", .ids = {"10de:2684", "1002:5046"}});
    kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
    kernel.add_driver({.name = "shpchp", .ids = {"class:0604"}});
    kernel.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel.add_function({.address = kCard, .group = 12, .driver = "bochs-drm"});
    kernel.add_function({.address = kCardsAudio,
                         .ids = "10de:22ba",
                         .class_code = 0x040300,
                         .group = 12,
                         .driver = "snd_hda_intel"});
    kernel.add_function({.address = kDriverless, .ids = "10de:2204", .group = 13});
    kernel.add_function({.address = "0000:03:00.1",
                         .ids = "10de:1aef",
                         .class_code = 0x040300,
                         .group = 13,
                         .driver = "snd_hda_intel"});
    kernel.add_function({.address = "0000:04:00.0",
                         .ids = "1b36:000e",
                         .class_code = 0x060400,
                         .group = 14,
                         .driver = "shpchp",
                         .header_type = 1});
    kernel.add_function({.address = kBlocked, .ids = "10de:1db6", .class_code = 0x030200, .group = 14});
    kernel.add_function({.address = "0000:05:02.0",
                         .ids = "1002:5046",
                         .class_code = 0x038000,
                         .group = 14,
                         .driver = "bochs-drm"});
    kernel.add_function({.address = kTesla,
                         .ids = "10de:1eb8",
                         .subsystem_ids = "10de:12a2",
                         .class_code = 0x030200,
                         .group = 15,
                         .driver = "nvidia"});
    mdev_.add_parent(kTesla);
    kernel.file("dev/vfio/vfio", "");
    kernel.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel.directory("proc/1/fd");
    options.pod_resources = {.socket = plugin::kPodResourcesSocket,
                             .period = 20ms,
                             .settling = 0ms,
                             .names = true,
                             .poll_period = 20ms};
    kubelet = make_kubelet();
  }

  // ---- what the demo does

  std::vector<vfio::RebindResult::Status> rebind(vfio::Direction direction,
                                                 const std::vector<const char*>& gpus) {
    vfio::RebindRequest request;
    request.recorded_only = direction == vfio::Direction::back;
    for (const char* gpu : gpus) request.accelerators.push_back(at(gpu));
    std::vector<vfio::RebindResult::Status> out;
    const vfio::RebindOutcome rebound = must(vfio::apply_rebinds(rebinds(), request, direction));
    for (const vfio::RebindResult& one : rebound.results) out.push_back(one.status);
    return out;
  }
  vfio::RebindContext rebinds() {
    return {.host = &kernel, .writer = &kernel, .probe = &probe_, .rules = rules(), .on_step = {}};
  }
  vgpu::VgpuHost vgpus() {
    return {.host = kernel,
            .writer = kernel,
            .uses = probe_,
            .rules = rules(),
            .node = must(vgpu::node_identity(kernel)),
            .pause = [](auto) {}};
  }
  static vfio::AcceleratorRules rules() {
    return {.vendors = {0x10de}, .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d}};
  }
  test::ProgramResult ferry(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", kernel.root().string()});
    return test::run_ferry(arguments);
  }

  /// A process has the node of the first card's group open.
  void hold_group_12() {
    kernel.file("sys/class/vfio/12/dev", "1:3\n");  // that of /dev/null
    kernel.file("proc/412/comm", "qemu\n");
    kernel.file("proc/412/cmdline", "qemu");
    kernel.file("proc/412/maps", "");
    kernel.link("proc/412/fd/3", "/dev/null");
  }
  void want_all_at_the_host() {
    kernel.file("etc/ferry/policy.yaml", "version: v2\npolicies:\n  host: [{devices: all, mode: host}]\n");
    kernel.file("var/lib/ferry/desired.json",
                R"({"version": 2, "file": "/etc/ferry/policy.yaml", "policy": "host"})");
  }

  // ---- the reports

  std::set<std::string> allocated() const {
    std::set<std::string> out;
    for (const auto& [name, resource] : kubelet->resources())
      out.insert(resource.allocated.begin(), resource.allocated.end());
    return out;
  }
  void hostd_looks() {
    const auto looked = ferry({"hostd", "--once"});
    EXPECT_TRUE(kernel.exists(api::kStatusFile)) << looked.err;
    host_ = must(api::read_host_status(must(kernel.read_file(api::kStatusFile))));
  }
  api::AdvertisedResources advertised() const {
    const auto text = kernel.read_file(api::kAdvertisedFile);
    return text ? must(api::read_advertised_resources(*text)) : api::AdvertisedResources();
  }

  /// Of all that is said, by hostd's last look, what differs from what is.
  Differences differing() {
    const Node truth = look_at_sysfs(kernel.root(), allocated());
    agent::MetricsSnapshot snapshot;
    snapshot.host.content = host_;
    snapshot.advertised.content = advertised();
    std::vector<vfio::PciAddress> gpus;
    for (const api::AcceleratorStatus& gpu : host_.accelerators)
      if (gpu.counts_as_gpu()) gpus.push_back(gpu.address);
    snapshot.facts = agent::read_gpu_facts(kernel, gpus);
    const auto families = agent::metric_families(snapshot);
    Differences out = differences("metrics", reported_by_metrics(families), truth);
    Numbers counted = numbers_of(truth);
    for (Sample& sample : samples(families, "ferry_gpus"))
      if (std::stoi(sample[""]) != counted["mode " + sample["mode"]])
        out.push_back("metrics count other GPUs as " + sample["mode"]);
    Numbers given;
    for (Sample& sample : samples(families, "ferry_resource_devices"))
      if (sample["state"] == "allocated") given[sample["resource"]] = std::stoi(sample[""]);
    for (const auto& [name, resource] : kubelet->resources())
      if (given[name] != static_cast<int>(resource.allocated.size()))
        out.push_back(fmt::format("metrics say that pods have {} of {}", given[name], name));

    const auto status = ferry({"status", "-o", "json"});
    const auto of_status = differences("status", reported_by_status(json::parse(status.out)), truth);
    out.insert(out.end(), of_status.begin(), of_status.end());

    const agent::Labels labels = agent::feature_labels(host_).value_or(agent::Labels());
    if (reported_by_labels(labels) != counted) out.push_back(fmt::format("labels are {}", labels));
    return out;
  }
  Differences after_a_look() {
    hostd_looks();
    return differing();
  }

  test::FakeMdev mdev_{kernel};
  test::TableProbe probe_;
  api::HostStatus host_;
};

TEST_F(Agreement, HoldsAfterEachStepOfTheDemo) {
  using Status = vfio::RebindResult::Status;
  EXPECT_THAT(after_a_look(), IsEmpty()) << "before";

  EXPECT_THAT(rebind(vfio::Direction::to_vfio, {kCard, kDriverless, kBlocked, kTesla}),
              testing::UnorderedElementsAre(Status::done, Status::done, Status::done, Status::refused));
  EXPECT_THAT(after_a_look(), IsEmpty()) << "whole groups are on vfio";
  EXPECT_EQ(reported_by_status(json::parse(ferry({"status", "-o", "json"}).out)).at(kCard).mode,
            "passthrough");

  EXPECT_EQ(kernel.driver_of(kTesla), "vfio-pci");
  EXPECT_THAT(rebind(vfio::Direction::back, {kTesla}), ElementsAre(Status::done));
  EXPECT_EQ(kernel.driver_of(kTesla), "nvidia");
  EXPECT_THAT(after_a_look(), IsEmpty()) << "one has come back";

  const vgpu::Profile profile =
      test::profile("  - {devices: all, device-filter: '0x1EB810DE', vgpu-devices: {T4-4Q: 3}}\n");
  must(vgpu::apply_profile(vgpus(), profile));
  EXPECT_EQ(mdev_.devices_on(kTesla).size(), 3U);
  EXPECT_THAT(after_a_look(), IsEmpty()) << "vGPUs are made";

  start_both();
  ASSERT_TRUE(allocatable(kCardResource, 1));
  ASSERT_TRUE(allocatable("nvidia.com/GA102_GEFORCE_RTX_3090", 1));
  ASSERT_TRUE(allocatable(kVgpuResource, 3));
  EXPECT_THAT(after_a_look(), IsEmpty()) << "they are advertised";

  const auto advertised_as_allocated = [&](const json& /*file*/) {
    std::set<std::string> given;
    for (const api::AdvertisedDevice& device : advertised().devices)
      if (device.allocated) given.insert(device.id);
    return given == allocated();
  };
  ASSERT_TRUE(kubelet->allocate(kCardResource, 1).ok());
  const auto vgpu = kubelet->allocate(kVgpuResource, 1);
  ASSERT_TRUE(vgpu.ok());
  EXPECT_EQ(allocated().size(), 2U);
  ASSERT_TRUE(advertised_becomes(advertised_as_allocated));
  EXPECT_THAT(after_a_look(), IsEmpty()) << "pods have some";

  EXPECT_EQ(ferry({"vfio", "unbind", "--device", kCard}).status, 4);
  EXPECT_EQ(ferry({"vgpu", "delete", "--all"}).status, 4);
  EXPECT_THAT(after_a_look(), IsEmpty()) << "what is in use stays";

  EXPECT_THAT(rebind(vfio::Direction::back, {kDriverless}), ElementsAre(Status::done));
  EXPECT_EQ(kernel.driver_of(kDriverless), "nouveau") << "the kernel chooses for what had none";
  EXPECT_EQ(kernel.driver_of(kCard), "vfio-pci");
  EXPECT_THAT(after_a_look(), IsEmpty()) << "a part comes back while pods have the rest";

  kubelet->release({kCard, vgpu.ids.at(0)});
  ASSERT_TRUE(advertised_becomes(advertised_as_allocated));
  EXPECT_THAT(after_a_look(), IsEmpty()) << "the pods have gone";

  EXPECT_TRUE(stop());
  must(vgpu::remove_vgpus(vgpus(), {}));
  EXPECT_THAT(mdev_.devices_on(kTesla), IsEmpty());
  rebind(vfio::Direction::back, {kCard, kDriverless, kBlocked, kTesla});
  EXPECT_EQ(kernel.driver_of(kCard), "bochs-drm");
  EXPECT_THAT(after_a_look(), IsEmpty()) << "everything is put back";
}

// A sound card is no GPU, whatever hostd has to say of it.
TEST_F(Agreement, HoldsWhereAVmKeepsTheSoundCardOfAnUnpluggedGpu) {
  rebind(vfio::Direction::to_vfio, {kCard});
  ASSERT_EQ(kernel.driver_of(kCardsAudio), "vfio-pci");
  kernel.remove_function(kCard);
  hold_group_12();
  want_all_at_the_host();
  EXPECT_THAT(after_a_look(), IsEmpty());
  const auto audio = std::ranges::find(host_.accelerators, at(kCardsAudio), &api::AcceleratorStatus::address);
  ASSERT_NE(audio, host_.accelerators.end()) << "hostd says who keeps it";
  EXPECT_EQ(audio->state, api::GpuState::blocked);
}

// A GPU that reads all ones, on vfio: its group is what its drivers make of it.
TEST_F(Agreement, HoldsOfAGpuThatIsOffTheBus) {
  rebind(vfio::Direction::to_vfio, {kCard});
  kernel.file("sys/bus/pci/devices/" + std::string(kCard) + "/config", std::string(64, '\xff'));
  EXPECT_THAT(after_a_look(), IsEmpty());
}

// So that the tests above can fail.
TEST_F(Agreement, IsNotSaidOfWhatIsOld) {
  EXPECT_THAT(after_a_look(), IsEmpty());
  rebind(vfio::Direction::to_vfio, {kCard});
  EXPECT_THAT(differing(), AllOf(Contains(HasSubstr("metrics of 0000:02:00.0: host in 12")),
                                 Contains(HasSubstr("metrics count other GPUs as passthrough")),
                                 Contains(HasSubstr("labels are"))));
  hostd_looks();
  mdev_.add_device(kTesla, "nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
  EXPECT_THAT(differing(), Contains(HasSubstr("metrics of 0000:06:00.0: host in 15")));
  hostd_looks();
  ASSERT_TRUE(kubelet->start());
  kubelet->remember({.name = "pod-1", .resource = kCardResource, .ids = {kCard}});
  EXPECT_THAT(differing(),
              ElementsAre(HasSubstr("metrics of 0000:02:00.0"), HasSubstr("metrics say that pods have 0"),
                          HasSubstr("status of 0000:02:00.0")));
}

}  // namespace
}  // namespace ferry::cli
