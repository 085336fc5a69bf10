// SPDX-License-Identifier: Apache-2.0
// scripts/capture-host, and `ferry --host-root` on the folder that it writes.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sys/wait.h>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"
#include "tests/support/machines.h"
#include "tests/vfio/machines.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::run_ferry;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kLeftOut = "captured-by-ferry/left-out";

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class CaptureHost : public testing::Test {
 protected:
  void build(const std::string& name) {
    test::composed_machine(name).build(machine_);
    machine_.kernel.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
  }
  std::string root() const { return machine_.kernel.root().string(); }
  static test::ProgramResult on(const fs::path& root, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--host-root", root.string()});
    return run_ferry(arguments);
  }
  test::ProgramResult capture(const fs::path& from, const fs::path& to) const {
    const fs::path out = scratch_.path() / "script.out";
    const fs::path err = scratch_.path() / "script.err";
    const std::string line = fmt::format("'{}' --from '{}' '{}' > '{}' 2> '{}'", FERRY_CAPTURE_HOST,
                                         from.string(), to.string(), out.string(), err.string());
    const int status = std::system(line.c_str());  // NOLINT(cert-env33-c): a script, as a shell runs it
    return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .out = content(out), .err = content(err)};
  }
  void must_capture(const fs::path& from, const fs::path& to) const {
    const auto result = capture(from, to);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, HasSubstr("ferry --host-root " + to.string() + " status"));
  }
  /// The config space of functions of one host, as its capture has it.
  std::vector<std::string> captured_config(const std::vector<std::string>& given) const {
    const test::ScratchDirectory host;
    const auto folder = [](std::size_t i) { return fmt::format("devices/pci0000:00/0000:{:02x}:00.0", i); };
    for (std::size_t i = 0; i < given.size(); ++i) {
      host.file("sys/" + folder(i) + "/config", given[i]);
      host.link(fmt::format("sys/bus/pci/devices/0000:{:02x}:00.0", i), "../../../" + folder(i));
    }
    must_capture(host.path(), host.path() / "captured");
    std::vector<std::string> out;
    for (std::size_t i = 0; i < given.size(); ++i)
      out.push_back(content(host.path() / "captured/sys" / folder(i) / "config"));
    return out;
  }
  test::Machine machine_;
  test::ScratchDirectory scratch_;
};

TEST_F(CaptureHost, ACapturedHostSaysTheSame) {
  for (const test::ComposedMachine& composed : test::composed_machines()) {
    if (std::string(composed.name) == "large") continue;  // the same as sriov-host, and slow
    test::Machine machine;
    composed.build(machine);
    machine.kernel.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    machine.kernel.directory("proc/sys/kernel");  // no process: nobody can be asked who uses what
    for (const char* socket : {"device-plugins/kubelet.sock", "device-plugins/kubevirt-nvidia.com-A40.sock",
                               "pod-resources/kubelet.sock"})
      machine.kernel.file(std::string("var/lib/kubelet/") + socket, "");
    const fs::path to = scratch_.path() / composed.name;
    must_capture(machine.kernel.root(), to);
    EXPECT_FALSE(fs::exists(to / kLeftOut)) << composed.name << content(to / kLeftOut);
    for (const std::vector<std::string>& verb :
         {std::vector<std::string>{"status", "-o", "json"},
          {"doctor", "--for", "passthrough,vgpu,kubevirt", "-o", "json"},
          {"vgpu", "types", "-o", "json"},
          {"vgpu", "export"},
          {"export"},
          {"vfio", "plan", "--all", "-o", "json"},
          {"vfio", "restore", "--dry-run"}}) {
      const auto there = on(machine.kernel.root(), verb);
      const auto here = on(to, verb);
      EXPECT_EQ(here.out, there.out) << composed.name << ": ferry " << verb[0] << ' ' << verb.back();
      EXPECT_EQ(here.status, there.status) << composed.name << here.err;
    }
  }
}

// A capture has nothing of the daemon, so `ferry` knows nothing of it.
TEST_F(CaptureHost, ACapturedHostIsNotFailedForItsProcesses) {
  build("t4-server");
  machine_.kernel.file("proc/412/comm", "nvidia-vgpu-mgr\n");
  const fs::path to = scratch_.path() / "captured";
  must_capture(root(), to);
  const auto verdict = [](const test::ProgramResult& doctor) {
    const json document = json::parse(doctor.out);
    for (const json& check : document.at("checks"))
      if (check.at("id") == "vgpu-manager-runs") return check.at("verdict").get<std::string>();
    return std::string();
  };
  const std::vector<std::string> doctor = {"doctor", "--for", "vgpu", "-o", "json"};
  EXPECT_EQ(verdict(on(root(), doctor)), "pass");
  EXPECT_EQ(verdict(on(to, doctor)), "unknown");
}

// The kubelet's files about pods belong to the pods, so a capture has their names alone.
TEST_F(CaptureHost, ACaptureHasNamesAloneOfTheKubeletsFolders) {
  build("laptop");
  const std::string checkpoint = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
  machine_.kernel.file(checkpoint, "secret-pod");
  machine_.kernel.file("dev/vhost-vsock", "");
  const fs::path to = scratch_.path() / "captured";
  must_capture(root(), to);
  EXPECT_TRUE(fs::exists(to / "dev/vhost-vsock"));
  EXPECT_TRUE(fs::exists(to / checkpoint));
  EXPECT_EQ(content(to / checkpoint), "");
}

TEST_F(CaptureHost, ACapturedHostWithAnUnreadFunctionIsCapturedAgain) {
  build("laptop");
  const fs::path to = scratch_.path() / "captured";
  must_capture(root(), to);
  const std::ofstream emptied(to / "sys/bus/pci/devices/0000:01:00.0/vendor");
  must_capture(to, scratch_.path() / "again");
}

// The UUIDs of vGPUs tell Ferry's own, but only with the ID of the machine.
TEST_F(CaptureHost, ACapturedHostKnowsWhichVgpusFerryMade) {
  build("t4-server");
  const std::string id = "0123456789abcdef0123456789abcdef";
  const std::string gpu = "0000:d8:00.0";
  const std::string ours = vgpu::stable_uuid(id, test::at(gpu), "T4-4Q", 2).text;
  machine_.mdev().remove_device(gpu, "7b1e6c52-4f0a-5d9b-a3c4-1122334455aa");  // somebody else's
  machine_.mdev().add_device(gpu, "nvidia-232", ours);
  const std::string type = content(machine_.kernel.root() / "sys/bus/mdev/devices" / ours / "mdev_type/name");
  ASSERT_THAT(type, HasSubstr("T4-4Q"));
  const fs::path to = scratch_.path() / "captured";
  const fs::path again = scratch_.path() / "again";
  must_capture(root(), to);
  must_capture(to, again);  // one that is captured itself
  for (const std::string& word : {ours, gpu}) {
    const auto there = on(root(), {"explain", word});
    EXPECT_THAT(there.out, HasSubstr("ferry vgpu delete --device"));
    for (const fs::path& captured : {to, again}) {
      const auto here = on(captured, {"explain", word});
      EXPECT_EQ(here.out, there.out);
      EXPECT_EQ(here.status, there.status) << here.err;
    }
  }
  EXPECT_THAT(on(to, {"explain", gpu}).out, Not(HasSubstr("--foreign")));
}

TEST_F(CaptureHost, ACapturedHostHasTheParametersOfWholeFunctions) {
  auto& kernel = machine_.kernel;
  const std::string gpu = "0000:03:00.0";
  kernel.add_driver({.name = "xe", .ids = {"8086:e211"}, .sriov = true});
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  kernel.add_function({.address = gpu,
                       .ids = "8086:e211",
                       .class_code = 0x030000,
                       .group = 3,
                       .driver = "xe",
                       .totalvfs = 4});
  kernel.enable_vfs(gpu, 1);
  const std::string function = kernel.vfs_of(gpu).at(0);
  const std::string home = "sys/devices/pci0000:00/";
  kernel.file(home + function + "/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write("sys/bus/pci/drivers/xe/unbind", function));
  ASSERT_TRUE(kernel.write("sys/bus/pci/drivers/vfio-pci/bind", function));
  kernel.file(home + gpu + "/sriov_admin/vf1/profile/exec_quantum_ms", "20\n");
  kernel.file(home + gpu + "/sriov_admin/vf1/profile/preempt_timeout_us", "0\n");
  kernel.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
  const fs::path to = scratch_.path() / "captured";
  must_capture(root(), to);
  const auto exported = on(root(), {"export"});
  EXPECT_THAT(exported.out, HasSubstr("vgpu-params: \"exec_quantum_ms=20\"")) << exported.err;
  EXPECT_EQ(on(to, {"export"}).out, exported.out);
  EXPECT_EQ(content(to / home / gpu / "sriov_drivers_autoprobe"), "1\n");
}

void put_word(std::string& config, std::size_t at, unsigned word) {
  config[at] = static_cast<char>(word & 0xffU);
  config[at + 1] = static_cast<char>(word >> 8U);
}

/// A config space with VPD at 0x60 and the serial number at 0x148, both after another capability.
std::string config_space(const std::string& serial) {
  std::string config(4096, '\0');
  config.replace(0, 4, "\xde\x10\xb8\x1e");
  config[0x34] = 0x40;
  config.replace(0x40, 2, "\x10\x60");
  config.replace(0x60, 2, std::string("\x03\0", 2));
  config.replace(0x64, 4, serial, 0, 4);
  put_word(config, 0x100, 0x0001);
  put_word(config, 0x102, 0x1481);  // its version stands in the lower four bits
  put_word(config, 0x148, 0x0003);
  put_word(config, 0x14a, 0x2001);
  config.replace(0x14c, 8, serial);
  put_word(config, 0x200, 0x000d);
  return config;
}

TEST_F(CaptureHost, LosesSerialNumbersOfConfigSpaceAndNothingElse) {
  EXPECT_EQ(captured_config({config_space("sesame!!")}).at(0), config_space(std::string(8, '\0')));
}

// Each ends, within the bytes that there are.
TEST_F(CaptureHost, FollowsAListOfConfigSpaceNoFurtherThanItLeads) {
  const std::string whole = config_space("sesame!!");
  std::vector<std::string> given;
  for (const std::size_t size : {0U, 64U, 255U}) given.push_back(whole.substr(0, size));
  given.emplace_back(4096, '\xff');  // off the bus
  const std::size_t kept = given.size();
  std::string circles = whole;
  put_word(circles, 0x202, 0x1001);
  circles[0x61] = 0x40;
  given.push_back(circles);
  for (const std::size_t size : {256U, 257U, 259U, 0x149U, 0x14bU, 0x14cU, 0x14eU, 0x153U})
    given.push_back(whole.substr(0, size));
  const std::size_t without_serials = given.size();
  std::string at_the_end = whole;
  put_word(at_the_end, 0x14a, 0xffc1);
  put_word(at_the_end, 0xffc, 0x0003);
  at_the_end[0x61] = static_cast<char>(0xfc);
  at_the_end[0xfc] = 0x03;
  given.push_back(at_the_end);
  std::string into_the_header = whole;
  put_word(into_the_header, 0x102, 0x0201);
  given.push_back(into_the_header);

  const std::vector<std::string> captured = captured_config(given);
  for (std::size_t i = 0; i < given.size(); ++i) {
    ASSERT_EQ(captured[i].size(), given[i].size()) << i;
    EXPECT_EQ(captured[i].substr(0, 64), given[i].substr(0, 64)) << i;
    if (i < kept) {
      EXPECT_EQ(captured[i], given[i]) << i;
    } else if (i < without_serials) {
      EXPECT_THAT(captured[i], Not(HasSubstr("se"))) << i;
    }
  }
}

TEST_F(CaptureHost, ACapturedHostHasNothingSecret) {
  build("t4-server");
  auto& kernel = machine_.kernel;
  kernel.file(
      "proc/cmdline",
      "BOOT_IMAGE=/vmlinuz root=UUID=1234 intel_iommu=on ip=10.0.0.1 token=sesame vfio-pci.ids=10de:1eb8\n");
  kernel.file("proc/1234/cmdline", "mysqld --password=sesame");
  kernel.file("proc/driver/nvidia/gpus/0000:3b:00.0/information",
              "Model: Tesla T4\nGPU UUID: GPU-sesame\nDevice Minor: 0\n");
  const std::string gpu = "sys/devices/pci0000:00/0000:3b:00.0/";
  kernel.file(gpu + "serial_number", "sesame\n");
  for (const char* unread : {"vpd", "rom", "resource0", "reset", "drm/card0/card0-DP-1/edid"})
    kernel.file(gpu + unread, "sesame");
  kernel.file(gpu + "config", config_space("sesame!!"));
  kernel.file("proc/cpuinfo", "processor : 0\nSerial : sesame\n");
  const fs::path to = scratch_.path() / "captured";
  must_capture(root(), to);
  for (const auto& entry : fs::recursive_directory_iterator(to)) {
    if (entry.is_regular_file() && !entry.is_symlink()) {
      EXPECT_THAT(content(entry.path()), Not(HasSubstr("sesame"))) << entry.path();
    }
  }
  EXPECT_FALSE(fs::exists(to / "proc/1234"));
  EXPECT_EQ(content(to / "proc/cmdline"), "intel_iommu=on vfio-pci.ids=10de:1eb8\n");
  EXPECT_EQ(content(to / "etc/machine-id"), std::string(32, '0') + "\n");
  EXPECT_TRUE(fs::exists(to / gpu / "rom")) << "that it is there is no secret";
}

TEST_F(CaptureHost, ACaptureReadsNothingThatADriverWouldHangOn) {
  build("t4-server");
  auto& kernel = machine_.kernel;
  kernel.hang_change(1);
  ASSERT_FALSE(kernel.write("sys/bus/pci/drivers/nvidia/unbind", "0000:af:00.0"));
  const fs::path to = scratch_.path() / "captured";
  must_capture(root(), to);
  EXPECT_THAT(content(to / kLeftOut),
              HasSubstr("0000:af:00.0/mdev_supported_types: an earlier write to its GPU has not returned"));
  EXPECT_FALSE(fs::exists(to / "sys/devices/pci0000:00/0000:af:00.0/mdev_supported_types"));
  EXPECT_TRUE(fs::exists(to / "sys/devices/pci0000:00/0000:d8:00.0/mdev_supported_types"));
}

TEST_F(CaptureHost, ACaptureOverwritesNothing) {
  build("laptop");
  scratch_.file("full/mine", "x");
  const auto result = capture(root(), scratch_.path() / "full");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("something is in it already"));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.path() / "full"), {}), 1);
}

TEST_F(CaptureHost, NeedsAFolderAndARootThatIsThere) {
  const auto nowhere = capture("/nowhere", scratch_.path() / "to");
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("there is no folder '/nowhere'"));
  EXPECT_EQ(capture(root(), "").status, 2);
}

TEST_F(CaptureHost, WritesNothingOnTheHost) {
  build("t4-server");
  const auto files = [this] {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(root()))
      out[entry.path().string()] = entry.is_symlink()        ? fs::read_symlink(entry.path()).string()
                                   : entry.is_regular_file() ? content(entry.path())
                                                             : "";
    return out;
  };
  const auto before = files();
  must_capture(root(), scratch_.path() / "captured");
  EXPECT_EQ(files(), before);
}

TEST_F(CaptureHost, TakesOnlyWordsAboutDevicesOfTheCommandLine) {
  for (const auto& [line, kept] :
       {std::pair{"a=b iommu=pt  quiet pci=noaer\n", "iommu=pt pci=noaer\n"}, {"", "\n"}, {"quiet", "\n"}}) {
    const test::ScratchDirectory host;
    host.file("proc/cmdline", line);
    must_capture(host.path(), host.path() / "captured");
    EXPECT_EQ(content(host.path() / "captured/proc/cmdline"), kept);
  }
}

TEST_F(CaptureHost, TakesTheNamesOfTheDevicesThatThereAre) {
  const test::ScratchDirectory host;
  host.file("sys/devices/pci0000:00/0000:01:00.0/vendor", "0x10de\n");
  host.file("sys/devices/pci0000:00/0000:01:00.0/device", "0x1eb8\n");
  host.link("sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:01:00.0");
  host.file("usr/share/misc/pci.ids",
            "# head\n10de  NVIDIA\n\t1eb8  T4\n\t\t10de 12a2  board\n\t2684  4090\n1002  AMD\n\t1eb8  x\n");
  must_capture(host.path(), host.path() / "captured");
  EXPECT_EQ(content(host.path() / "captured/usr/share/misc/pci.ids"), "10de  NVIDIA\n\t1eb8  T4\n");
}

}  // namespace
}  // namespace ferry::cli
