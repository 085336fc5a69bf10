// SPDX-License-Identifier: Apache-2.0
#include "vfio/registers/register_reading.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/child_libraries.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"
#include "tests/vfio/bar_model.h"
#include "tests/vfio/bridge_space.h"
#include "tests/vfio/register_host.h"
#include "vfio/registers/reading_record.h"
#include "vfio/registers/register_access.h"

namespace ferry::vfio {
namespace {

using test::address;
using test::BarModel;
using test::Device;
using test::gpu_config;
using test::kB200;
using test::kGpu;
using test::kH100;
using test::kNext;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using namespace std::chrono_literals;

const bool kAdded = [] {
  test::child_libraries().push_back({.name = kRegisterLibrary, .answer = answer_register_call});
  return true;
}();

/// A host whose registers are read.
class Host : public test::RegisterHost {
 public:
  RegisterFacts read(const std::string& gpu) {
    const std::vector<PciAddress> one = {address(gpu)};
    RegisterReading reading = read_registers(writer(), one);
    EXPECT_THAT(reading.faults, IsEmpty());
    EXPECT_THAT(reading.functions, SizeIs(1));
    return reading.functions.empty() ? RegisterFacts{} : reading.functions.front().registers;
  }
  void expect_restored(const std::string& gpu) {
    EXPECT_EQ(text(gpu, "power/control"), "auto");
    EXPECT_EQ(command(gpu), 0U);
    EXPECT_FALSE(has_unfinished_reading(fs()));
  }
};

// Waits for a state of another process that no event shows.
template <typename Condition>
bool comes(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

TEST(RegisterReading, ReadsAndRestores) {
  Host host;
  host.add(kGpu);
  const RegisterFacts facts = host.read(kGpu);
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.chip, "gh100");
  EXPECT_EQ(facts.mode(), "off");
  EXPECT_EQ(facts.chip_id, "0123456789abcdef");
  EXPECT_THAT(facts.unknown,
              ElementsAre(UnknownFact{.fact = "memory_bytes",
                                      .reason = "register 0x100ce0 reads 0x0, which is no size"}));
  host.expect_restored(kGpu);
}

TEST(RegisterReading, LeavesAFunctionThatIsAwakeAsItIs) {
  Host host;
  Device device{.control = "on"};
  device.config[4] = 0x6;
  host.add(kGpu, device);
  EXPECT_EQ(host.read(kGpu).mode(), "off");
  EXPECT_EQ(host.text(kGpu, "power/control"), "on");
  EXPECT_EQ(host.command(kGpu), 6U);
}

TEST(RegisterReading, KeepsOtherBitsOfTheCommandRegister) {
  Host host;
  Device device;
  device.config[4] = 0x4;
  host.add(kGpu, device);
  EXPECT_EQ(host.read(kGpu).mode(), "off");
  EXPECT_EQ(host.command(kGpu), 4U);
}

struct Untouched {
  std::string name;
  Device device;
  std::string problem;
};
void PrintTo(const Untouched& row, std::ostream* out) {
  *out << row.name;
}
class UntouchedFunctions : public testing::TestWithParam<Untouched> {};

TEST_P(UntouchedFunctions, SayWhy) {
  Host host;
  host.add(kGpu, GetParam().device);
  const RegisterFacts facts = host.read(kGpu);
  EXPECT_EQ(facts.problem, GetParam().problem);
  EXPECT_EQ(facts.in_use, GetParam().name == "OfAVm");
  EXPECT_EQ(host.text(kGpu, "power/control"), "auto");
  EXPECT_EQ(test::must(host.fs().read_file(Host::path(kGpu, "config"))), GetParam().device.config);
}

Device with_config(std::uint16_t device, std::size_t at, std::uint32_t value) {
  Device out{.device = device, .config = gpu_config(device)};
  test::put32(out.config, at, value);
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    All, UntouchedFunctions,
    testing::Values(
        Untouched{"AnotherVendor",
                  {.vendor = 0x1002},
                  "it is of vendor 1002, and registers are known of NVIDIA alone"},
        Untouched{"Audio", {.device_class = 0x040300}, "it is no GPU and no NVSwitch"},
        Untouched{"Ampere", {.device = 0x20b5}, "its chip is older than Hopper, or unknown (device 20b5)"},
        Untouched{"AnotherDriver", {.driver = "nvidia"}, "driver nvidia owns it"},
        Untouched{"VariantDriver", {.driver = "nvgrace-gpu-vfio-pci"}, "driver nvgrace-gpu-vfio-pci owns it"},
        Untouched{"OfAVm", {.enable = "1"}, "it is in use: a user has opened it"},
        Untouched{"SmallBar",
                  {.bar_bytes = 4096},
                  "BAR 0 has 4096 bytes, and a chip that is known has 16777216 at least"},
        Untouched{"InD3", with_config(kH100, 0x44, 3), "it sleeps (D3), and does not wake"},
        Untouched{"FirewallUp", with_config(kB200, 0x150, 1U << 20U),
                  "its firewall is up, as while it boots"},
        Untouched{"WorkstationFirewallUp", with_config(0x2b85, 0x194, 1U << 24U),
                  "its firewall is up, as while it boots"},
        Untouched{"OffTheBus",
                  {.config = std::string(4096, '\xff')},
                  "/sys/bus/pci/devices/0000:17:00.0/config: reads all ones; the device is off the bus"}),
    [](const auto& row) { return row.param.name; });

TEST(RegisterReading, NeedsNoMoreOfConfigSpaceThanEveryUserSees) {
  for (const std::uint16_t device : {kH100, kB200}) {
    Host host;
    host.add(kGpu, {.device = device, .config = gpu_config(device).substr(0, 64)});
    EXPECT_EQ(host.read(kGpu).mode(), "off");
    host.expect_restored(kGpu);
  }
}

TEST(RegisterReading, TheKernelSaysThatAFunctionSleeps) {
  Host host;
  host.add(kGpu);
  host.tree().file(Host::path(kGpu, "power_state"), "D3hot\n");
  EXPECT_EQ(host.read(kGpu).problem, "it sleeps (D3hot), and does not wake");
  host.tree().file(Host::path(kGpu, "power_state"), "D0\n");
  EXPECT_EQ(host.read(kGpu).problem, "");
}

TEST(RegisterReading, VirtualFunctionsAndTheirParentAreLeftAlone) {
  Host host;
  host.add(kGpu);
  host.tree().link(Host::path(kGpu, "virtfn0"), "../" + std::string(kNext));
  host.add(kNext);
  host.tree().link(Host::path(kNext, "physfn"), "../" + std::string(kGpu));
  EXPECT_EQ(host.read(kGpu).problem, "it has 1 virtual functions");
  EXPECT_EQ(host.read(kNext).problem, "it is a virtual function");
}

TEST(RegisterReading, AFunctionThatIsGone) {
  Host host;
  EXPECT_EQ(host.read(kGpu).problem, "there is no PCI function 0000:17:00.0");
}

TEST(RegisterReading, AGpuBehindItsFirewallHasItsChip) {
  Host host;
  host.add(kGpu, with_config(kB200, 0x150, 1U << 20U));
  EXPECT_EQ(host.read(kGpu).chip, "gb100");
}

TEST(RegisterReading, TheVendorBitCountsOnWorkstationsAlone) {
  Host host;
  host.add(kGpu, with_config(kB200, 0x194, 1U << 24U));
  EXPECT_EQ(host.read(kGpu).mode(), "off");
}

TEST(RegisterReading, ASecurityFaultHasItsWord) {
  Host host;
  host.add(kGpu);
  BarModel hopper(BarModel::Kind::gh100);
  hopper.forced[0] = 0xbadf0200;
  host.save(kGpu, hopper);
  EXPECT_EQ(host.read(kGpu).problem,
            "register 0x0 reads 0xbadf0200, a security fault (config space 0x2b4: 0xcafe)");
  host.add(kNext, with_config(kB200, 0x15c, 0xbeef));
  BarModel blackwell(BarModel::Kind::gb100);
  blackwell.forced[0] = 0xbadf0200;
  host.save(kNext, blackwell);
  EXPECT_EQ(host.read(kNext).problem,
            "register 0x0 reads 0xbadf0200, a security fault (config space 0x15c: 0xbeef)");
}

TEST(RegisterReading, AnErrorOfTheMappingHasItsReason) {
  EXPECT_EQ(why_not_mapped(error_from_errno(EPERM, "map")),
            "the kernel is locked down, as with Secure Boot, and maps no registers");
  EXPECT_EQ(why_not_mapped(error_from_errno(EINVAL, "map")),
            "it is in use: a user or a driver has requested its memory range");
  EXPECT_THAT(why_not_mapped(error_from_errno(ENODEV, "map")), HasSubstr("No such device"));
}

TEST(RegisterReading, AMappingForReadingCannotBeWritten) {
  Host host;
  host.add(kGpu);
  const auto file = test::must(host.fs().open(Host::path(kGpu, "resource0"), O_RDONLY));
  const auto mapped = test::must(MappedRegisters::map(file, MappedRegisters::Access::read));
  EXPECT_EQ(mapped->read32(0x200bc), 0xffU);
  EXPECT_EXIT(mapped->write32(0x200bc, 1), testing::KilledBySignal(SIGSEGV), "");
}

TEST(RegisterReading, AMappingForWritingWritesWords) {
  Host host;
  host.add(kGpu);
  const auto file = test::must(host.fs().open(Host::path(kGpu, "resource0"), O_RDWR));
  {
    const auto mapped = test::must(MappedRegisters::map(file, MappedRegisters::Access::write));
    mapped->write32(0x200bc, 0x12345678);
  }
  const auto again = test::must(MappedRegisters::map(file, MappedRegisters::Access::read));
  EXPECT_EQ(again->read32(0x200bc), 0x12345678U);
}

// A file that is shorter than its mapping raises SIGBUS, as registers do whose mapping the kernel revokes.
TEST(RegisterReading, AChildThatDiesCostsNoOtherFunctionItsFacts) {
  Host host;
  host.add(kGpu);
  host.add(kNext);
  host.tree().file(Host::path(kGpu, "resource0"), "");
  const std::vector<PciAddress> both = {address(kGpu), address(kNext)};
  const RegisterReading reading = read_registers(host.writer(), both);
  EXPECT_THAT(reading.faults, IsEmpty());
  ASSERT_THAT(reading.functions, SizeIs(2));
  EXPECT_EQ(reading.functions[0].registers.problem,
            "read the registers of 0000:17:00.0: the writing process ended without an answer, as when a VM "
            "opens the function meanwhile");
  EXPECT_EQ(reading.functions[1].registers.mode(), "off");
  host.expect_restored(kGpu);
  host.expect_restored(kNext);
}

/// A child that stops in the middle of a reading, since its `resource0` is a FIFO without a writer.
class StoppedChild {
 public:
  explicit StoppedChild(Host& host) : host_(host) {
    host.add(kGpu);
    host.tree().remove(Host::path(kGpu, "resource0"));
    const auto fifo = host.tree().path() / Host::path(kGpu, "resource0");
    EXPECT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      (void)answer_register_call(host.fs(), "9000000000000\n" + std::string(kGpu) + "\n");
      ::_exit(0);
    }
    EXPECT_TRUE(comes([&] { return host.command(kGpu) == 2; }));
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    EXPECT_EQ(host_.text(kGpu, "power/control"), "on");
    EXPECT_EQ(host_.command(kGpu), 2U);
    EXPECT_TRUE(has_unfinished_reading(host_.fs()));
  }

 private:
  Host& host_;
  pid_t pid_ = -1;
};

TEST(KilledReading, IsRestoredByTheNextChild) {
  Host host;
  StoppedChild child(host);
  child.kill();
  EXPECT_THAT(read_registers(host.writer(), {}).faults, IsEmpty());
  host.expect_restored(kGpu);
}

TEST(KilledReading, IsRestoredBeforeAnotherFunctionIsRead) {
  Host host;
  host.add(kNext);
  StoppedChild child(host);
  child.kill();
  EXPECT_EQ(host.read(kNext).mode(), "off");
  host.expect_restored(kGpu);
  host.expect_restored(kNext);
}

TEST(KilledReading, LeavesTheMemoryBitToAUserWhoHasComeSince) {
  Host host;
  StoppedChild child(host);
  child.kill();
  host.tree().file(Host::path(kGpu, "enable"), "1\n");
  EXPECT_THAT(read_registers(host.writer(), {}).faults, IsEmpty());
  EXPECT_EQ(host.text(kGpu, "power/control"), "auto");
  EXPECT_EQ(host.command(kGpu), 2U);
  EXPECT_FALSE(has_unfinished_reading(host.fs()));
}

TEST(KilledReading, LeavesAllToAnotherDriver) {
  Host host;
  StoppedChild child(host);
  child.kill();
  host.tree().link(Host::path(kGpu, "driver"), "../../drivers/nvidia");
  EXPECT_THAT(read_registers(host.writer(), {}).faults, IsEmpty());
  EXPECT_EQ(host.text(kGpu, "power/control"), "on");
  EXPECT_EQ(host.command(kGpu), 2U);
  EXPECT_FALSE(has_unfinished_reading(host.fs()));
}

TEST(KilledReading, LeavesAFunctionThatIsGone) {
  Host host;
  StoppedChild child(host);
  child.kill();
  host.tree().remove("sys/bus/pci/devices/" + std::string(kGpu));
  EXPECT_THAT(read_registers(host.writer(), {}).faults, IsEmpty());
  EXPECT_FALSE(has_unfinished_reading(host.fs()));
}

TEST(KilledReading, IsVoidAfterAnotherBoot) {
  Host host;
  StoppedChild child(host);
  child.kill();
  host.tree().file("proc/sys/kernel/random/boot_id", "boot-2\n");
  EXPECT_THAT(read_registers(host.writer(), {}).faults, IsEmpty());
  EXPECT_EQ(host.text(kGpu, "power/control"), "on");
}

TEST(KilledReading, IsTriedAgainWhenItCannotBeRestored) {
  Host host;
  StoppedChild child(host);
  child.kill();
  const auto kept = test::must(host.fs().read_file(Host::path(kGpu, "config")));
  host.tree().remove(Host::path(kGpu, "config"));
  EXPECT_THAT(read_registers(host.writer(), {}).faults,
              ElementsAre(AllOf(HasSubstr("0000:17:00.0: the memory bit of its command register could not be "
                                          "restored to off: "),
                                HasSubstr("No such file"))));
  EXPECT_EQ(host.text(kGpu, "power/control"), "auto");
  EXPECT_TRUE(has_unfinished_reading(host.fs()));
  host.tree().file(Host::path(kGpu, "config"), kept);
  EXPECT_THAT(read_registers(host.writer(), {}).faults, IsEmpty());
  host.expect_restored(kGpu);
}

// A kill between the note and the change, and one in the middle of a note.
TEST(KilledReading, ANoteOfAChangeThatWasNotMadeDoesNoHarm) {
  Host host;
  host.add(kGpu);
  host.tree().file(kReadingRecord, "boot-1\n0000:17:00.0 vfio-pci control auto\n0000:17:00.0 vfio-pci mem");
  EXPECT_THAT(read_registers(host.writer(), {}).faults, IsEmpty());
  host.expect_restored(kGpu);
}

TEST(LateReading, IsLeftBehindRestoresByItselfAndReadsNoOther) {
  Host host;
  const auto hanging = [&](const char* gpu) {
    host.add(gpu);
    host.tree().remove(Host::path(gpu, "resource0"));
    auto fifo = host.tree().path() / Host::path(gpu, "resource0");
    EXPECT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    return fifo;
  };
  const auto fifo = hanging(kGpu);
  hanging(kNext);
  const std::vector<PciAddress> both = {address(kGpu), address(kNext)};
  const RegisterReading late = read_registers(host.writer(), both, 200ms);
  ASSERT_THAT(late.functions, SizeIs(2));
  EXPECT_THAT(late.functions[0].registers.problem,
              HasSubstr("read the registers of 2 functions: still in the kernel after 200 ms"));
  EXPECT_EQ(host.read(kNext).problem, "another process reads registers, or has not returned from the kernel");
  EXPECT_EQ(host.text(kNext, "power/control"), "auto");

  const UniqueFd writer(::open(fifo.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(comes([&] { return !has_unfinished_reading(host.fs()); }));
  host.expect_restored(kGpu);
}

TEST(RegisterReading, EightFunctionsTakeLessThan20Milliseconds) {
  Host host;
  std::vector<PciAddress> all;
  for (int i = 0; i < 8; ++i) {
    const std::string gpu = fmt::format("0000:{:02x}:00.0", 0x10 + i);
    host.add(gpu);
    all.push_back(address(gpu));
  }
  host.writer().prepare(1);
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const RegisterReading reading = read_registers(host.writer(), all);
    best = std::min(best, std::chrono::steady_clock::now() - start);
    ASSERT_THAT(reading.functions, SizeIs(8));
    for (const auto& [function, registers] : reading.functions) EXPECT_EQ(registers.mode(), "off");
  }
  RecordProperty("best_us",
                 static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(best).count()));
  EXPECT_LT(best, 20ms);
}

}  // namespace
}  // namespace ferry::vfio
