// SPDX-License-Identifier: Apache-2.0
// `ferry status --watch`, `--capture` and `ferry explain` as a user meets them.
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <pty.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "cli/verbs/capture.h"
#include "common/unique_fd.h"
#include "tests/cli/run_program.h"
#include "tests/support/machines.h"
#include "tests/vfio/machines.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::run_ferry;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class StatusVerbs : public testing::Test {
 protected:
  void build(const std::string& name) {
    test::composed_machine(name).build(machine_);
    machine_.kernel.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
  }
  std::string root() const { return machine_.kernel.root().string(); }
  test::ProgramResult on(const fs::path& root, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--host-root", root.string()});
    return run_ferry(arguments);
  }
  test::Machine machine_;
  test::ScratchDirectory scratch_;
};

TEST_F(StatusVerbs, ExplainKnowsAddressesUuidsAndResources) {
  build("t4-server");
  for (const char* word :
       {"0000:3b:00.0", "566b0cda-8c18-5fd3-92cb-496c5a60815f", "nvidia.com/TU104GL_TESLA_T4"}) {
    const auto result = on(root(), {"explain", word});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith(word));
  }
  const auto document = json::parse(on(root(), {"explain", "0000:5e:00.0", "-o", "json"}).out);
  EXPECT_EQ(document.at("place").at("slot"), "4");
  EXPECT_EQ(document.at("function").at("before").at("driver"), "nvidia");
  EXPECT_EQ(document.at("ways").back().at("command"), "ferry vfio unbind --device 0000:5e:00.0");
}

TEST_F(StatusVerbs, ExplainSuggestsWhatWasMeant) {
  build("t4-server");
  const auto result = on(root(), {"explain", "0000:3c:00.0"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("nothing on this node is called '0000:3c:00.0'"),
                                HasSubstr("did you mean '0000:3b:00.0'?"), HasSubstr("hint: ")));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(on(root(), {"explain", "3b:00.0"}).err, HasSubstr("0000:3b:00.0"));
}

TEST_F(StatusVerbs, SaysWhichProgramWritesAFileOfAnotherVersion) {
  build("t4-server");
  machine_.kernel.file("run/ferry/plugin/advertised.json", R"({"version": 3})");
  machine_.kernel.file("run/ferry/status.json", R"({"version": 1})");
  const json document = json::parse(on(root(), {"status", "-o", "json"}).out);
  const auto notes = document.at("notes").get<std::vector<std::string>>();
  EXPECT_THAT(notes,
              Contains(HasSubstr("advertised.json: version: expected 2, found 3; ferry plugin writes it")));
  EXPECT_THAT(notes, Contains(HasSubstr("status.json: version: expected 2, found 1; ferry hostd writes it")));
}

TEST_F(StatusVerbs, WatchSaysEachChangeOnceAndEndsByCtrlC) {
  build("policy-node");
  const fs::path out = scratch_.path() / "out";
  test::RunningProgram program("ferry", {"--host-root", root(), "status", "--watch"}, {}, out);
  const auto says = [&](const std::string& what) {
    return program.until([&] { return content(out).find(what) != std::string::npos; });
  };
  ASSERT_TRUE(says("policy mixed"));
  // A file of Ferry's that is replaced, and one that is new.
  const std::string state = content(machine_.kernel.root() / "run/ferry/status.json");
  std::string other = state;
  other.replace(other.find("mixed"), 5, "other");
  ASSERT_TRUE(machine_.kernel.write_file("run/ferry/status.json", other));
  ASSERT_TRUE(says("policy other")) << content(out);
  // One that says nothing new draws nothing: it is read, and only then does something change again.
  const UniqueFd heard(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_TRUE(machine_.kernel.write_file("run/ferry/status.json", other));
  ASSERT_GE(::inotify_add_watch(heard.get(), (machine_.kernel.root() / "run/ferry/status.json").c_str(),
                                IN_CLOSE_NOWRITE),
            0);
  std::array<char, 4096> events{};
  ASSERT_TRUE(program.until([&] { return ::read(heard.get(), events.data(), events.size()) > 0; }));
  ASSERT_TRUE(machine_.kernel.write_file("run/ferry/status.json", state));
  ASSERT_TRUE(program.until([&] {
    const std::string text = content(out);
    return text.rfind("policy mixed") > text.find("policy other");
  }));
  EXPECT_EQ(program.end_by(SIGINT), 0);
  const std::string text = content(out);
  std::size_t blocks = 0;
  for (auto at = text.find("ACCELERATOR"); at != std::string::npos; at = text.find("ACCELERATOR", at + 1))
    ++blocks;
  EXPECT_EQ(blocks, 3U) << text;
  EXPECT_THAT(text, AllOf(StartsWith("ACCELERATOR"), HasSubstr("\n\nACCELERATOR"), Not(HasSubstr("\033["))));
}

// A line that the terminal broke would have the first ones scroll away.
TEST_F(StatusVerbs, WatchLeavesNoLineToTheTerminalToBreak) {
  build("policy-node");
  const winsize size{.ws_row = 30, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  int first = -1;
  int second = -1;
  std::array<char, 64> name{};
  ASSERT_EQ(::openpty(&first, &second, name.data(), nullptr, &size), 0);
  const UniqueFd screen(first);
  const UniqueFd terminal(second);
  test::RunningProgram program("ferry", {"--host-root", root(), "status", "--watch"}, {"COLUMNS=200"},
                               name.data());
  std::string drawn;
  ASSERT_TRUE(program.until([&] {
    int there = 0;
    std::array<char, 4096> some{};
    if (::ioctl(screen.get(), FIONREAD, &there) != 0 || there <= 0) return false;
    const auto count = ::read(screen.get(), some.data(), some.size());
    if (count > 0) drawn.append(some.data(), static_cast<std::size_t>(count));
    return drawn.find("\033[J") != std::string::npos && drawn.ends_with("h");
  }));
  EXPECT_THAT(drawn, AllOf(StartsWith("\033[?7l\033[H"), testing::EndsWith("\033[J\033[?7h")));
  EXPECT_EQ(program.end_by(SIGTERM), 0);
}

TEST_F(StatusVerbs, WatchSeesFerrysFolderAppear) {
  build("laptop");
  machine_.kernel.directory("run");
  const fs::path out = scratch_.path() / "out";
  test::RunningProgram program("ferry", {"--host-root", root(), "status", "--watch", "-o", "json"}, {}, out);
  ASSERT_TRUE(program.until([&] { return content(out).find("0000:01:00.0") != std::string::npos; }));
  ASSERT_TRUE(machine_.kernel.write_file(
      "run/ferry/status.json",
      R"({"version":2,"generation":1,"pid":1,"boot_id":"b","desired":null,"phase":"idle",)"
      R"("accelerators":[],"unavailable":[],"error":null})"));
  EXPECT_TRUE(program.until([&] { return content(out).find("idle") != std::string::npos; }));
  EXPECT_EQ(program.end_by(SIGTERM), 0);
}

TEST_F(StatusVerbs, SaysHowOldAFailureIsThatHostdDoesNotLookAtAgain) {
  build("laptop");
  ASSERT_TRUE(machine_.kernel.write_file(
      "run/ferry/status.json",
      R"({"version":2,"generation":1,"pid":1,"boot_id":"b","desired":null,"phase":"failed","accelerators":[],)"
      R"("unavailable":[],"error":{"message":"the file was wrong","hint":""}})"));
  EXPECT_THAT(
      on(machine_.kernel.root(), {"status"}).out,
      HasSubstr("policy: failed, the file was wrong\n"
                "ferry hostd does not run, so nothing has looked again; `ferry hostd --once` does\n"));
  const auto file = machine_.kernel.root() / "run/ferry/status.json";
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes{190});
  EXPECT_THAT(on(machine_.kernel.root(), {"status"}).out,
              HasSubstr("that was 3 hours ago: ferry hostd does not run"));
}

TEST_F(StatusVerbs, ACapturedHostSaysTheSame) {
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
    const auto captured = on(machine.kernel.root(), {"status", "--capture", to.string(), "-o", "json"});
    ASSERT_EQ(captured.status, 0) << composed.name << captured.err;
    EXPECT_THAT(json::parse(captured.out).at("left_out"), IsEmpty()) << composed.name;
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

// Of the daemon nothing is taken, and so nothing known.
TEST_F(StatusVerbs, ACapturedHostIsNotFailedForItsProcesses) {
  build("t4-server");
  machine_.kernel.file("proc/412/comm", "nvidia-vgpu-mgr\n");
  const fs::path to = scratch_.path() / "captured";
  ASSERT_EQ(on(root(), {"status", "--capture", to.string()}).status, 0);
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

// What the kubelet keeps of its pods is theirs.
TEST_F(StatusVerbs, ACaptureHasNamesAloneOfTheKubeletsFolders) {
  build("laptop");
  const std::string checkpoint = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
  machine_.kernel.file(checkpoint, "secret-pod");
  machine_.kernel.file("dev/vhost-vsock", "");
  const fs::path to = scratch_.path() / "captured";
  ASSERT_EQ(on(root(), {"status", "--capture", to.string()}).status, 0);
  EXPECT_TRUE(fs::exists(to / "dev/vhost-vsock"));
  EXPECT_TRUE(fs::exists(to / checkpoint));
  EXPECT_EQ(content(to / checkpoint), "");
}

TEST_F(StatusVerbs, ACapturedHostWithAnUnreadFunctionIsCapturedAgain) {
  build("laptop");
  const fs::path to = scratch_.path() / "captured";
  ASSERT_EQ(on(root(), {"status", "--capture", to.string()}).status, 0);
  const std::ofstream emptied(to / "sys/bus/pci/devices/0000:01:00.0/vendor");
  const auto again = on(to, {"status", "--capture", (scratch_.path() / "again").string()});
  EXPECT_EQ(again.status, 0) << again.err;
}

// By their UUIDs, which only the machine's ID tells.
TEST_F(StatusVerbs, ACapturedHostKnowsWhichVgpusFerryMade) {
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
  ASSERT_EQ(on(root(), {"status", "--capture", to.string()}).status, 0);
  ASSERT_EQ(on(to, {"status", "--capture", again.string()}).status, 0) << "one that is captured itself";
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

TEST_F(StatusVerbs, ACapturedHostHasTheParametersOfWholeFunctions) {
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
  ASSERT_EQ(on(root(), {"status", "--capture", to.string()}).status, 0);
  const auto exported = on(root(), {"export"});
  EXPECT_THAT(exported.out, HasSubstr("vgpu-params: \"exec_quantum_ms=20\"")) << exported.err;
  EXPECT_EQ(on(to, {"export"}).out, exported.out);
  EXPECT_EQ(content(to / home / gpu / "sriov_drivers_autoprobe"), "1\n");
}

void put_word(std::string& config, std::size_t at, unsigned word) {
  config[at] = static_cast<char>(word & 0xffU);
  config[at + 1] = static_cast<char>(word >> 8U);
}

/// With VPD at 0x60 and the serial number at 0x148, both behind another capability.
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

TEST(CapturedConfig, LosesSerialNumbersAndNothingElse) {
  EXPECT_EQ(without_serial_numbers(config_space("sesame!!")), config_space(std::string(8, '\0')));
}

// Each ends, within the bytes that there are.
TEST(CapturedConfig, FollowsAListNoFurtherThanItLeads) {
  const std::string whole = config_space("sesame!!");
  std::string circles = whole;
  put_word(circles, 0x202, 0x1001);
  circles[0x61] = 0x40;
  EXPECT_THAT(without_serial_numbers(circles), Not(HasSubstr("sesa"))) << "round and round";
  for (const std::size_t size : {0U, 64U, 255U}) {
    EXPECT_EQ(without_serial_numbers(whole.substr(0, size)), whole.substr(0, size));
  }
  for (const std::size_t size : {256U, 257U, 259U, 0x149U, 0x14bU, 0x14cU, 0x14eU, 0x153U}) {
    const std::string cut = without_serial_numbers(whole.substr(0, size));
    EXPECT_EQ(cut.size(), size);
    EXPECT_THAT(cut, Not(HasSubstr("se"))) << size;
  }
  const std::string ones(4096, '\xff');
  EXPECT_EQ(without_serial_numbers(ones), ones) << "off the bus";
  std::string at_the_end = whole;
  put_word(at_the_end, 0x14a, 0xffc1);
  put_word(at_the_end, 0xffc, 0x0003);
  at_the_end[0x61] = static_cast<char>(0xfc);
  at_the_end[0xfc] = 0x03;
  EXPECT_EQ(without_serial_numbers(at_the_end).size(), 4096U);
  std::string into_the_header = whole;
  put_word(into_the_header, 0x102, 0x0201);
  EXPECT_EQ(without_serial_numbers(into_the_header).substr(0, 64), whole.substr(0, 64));
}

TEST_F(StatusVerbs, ACapturedHostHasNothingSecret) {
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
  ASSERT_EQ(on(root(), {"status", "--capture", to.string()}).status, 0);
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

TEST_F(StatusVerbs, ACaptureReadsNothingThatADriverWouldHangOn) {
  build("t4-server");
  auto& kernel = machine_.kernel;
  kernel.hang_change(1);
  ASSERT_FALSE(kernel.write("sys/bus/pci/drivers/nvidia/unbind", "0000:af:00.0"));
  const fs::path to = scratch_.path() / "captured";
  const auto captured = on(root(), {"status", "--capture", to.string(), "-o", "json"});
  ASSERT_EQ(captured.status, 0) << captured.err;
  EXPECT_THAT(json::parse(captured.out).at("left_out").dump(),
              HasSubstr("0000:af:00.0/mdev_supported_types: an earlier write to its GPU has not returned"));
  EXPECT_FALSE(fs::exists(to / "sys/devices/pci0000:00/0000:af:00.0/mdev_supported_types"));
  EXPECT_TRUE(fs::exists(to / "sys/devices/pci0000:00/0000:d8:00.0/mdev_supported_types"));
}

TEST_F(StatusVerbs, ACaptureOverwritesNothing) {
  build("laptop");
  scratch_.file("full/mine", "x");
  const auto result = on(root(), {"status", "--capture", (scratch_.path() / "full").string()});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("something is in it already"));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.path() / "full"), {}), 1);
}

TEST(PrivateWords, AreNotCaptured) {
  EXPECT_EQ(without_private_words("a=b iommu=pt  quiet pci=noaer\n"), "iommu=pt pci=noaer\n");
  EXPECT_EQ(without_private_words(""), "\n");
  EXPECT_EQ(without_private_words("quiet"), "\n");
}

TEST(PciIds, AreCutToTheDevicesThatThereAre) {
  EXPECT_EQ(
      only_these_ids(
          "# head\n10de  NVIDIA\n\t1eb8  T4\n\t\t10de 12a2  board\n\t2684  4090\n1002  AMD\n\t1eb8  x\n",
          {"10de:1eb8", "8086:1111"}),
      "10de  NVIDIA\n\t1eb8  T4\n");
  EXPECT_EQ(only_these_ids("", {"10de:1eb8"}), "");
}

}  // namespace
}  // namespace ferry::cli
