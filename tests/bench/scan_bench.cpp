// SPDX-License-Identifier: Apache-2.0
// How much the scan adds to what it reads: 512 functions, against a loop that opens and reads the same files
// and looks at nothing in them.
#include <array>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "tests/bench/pairs.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"
#include "vfio/pci/inventory.h"

namespace ferry::test {
namespace {

constexpr unsigned kCards = 64;
constexpr unsigned kFunctions = 512;

// What the directory of a function holds beside what the scan reads: listing it costs as it does on a host.
void add_the_rest(const FakeKernel& kernel, const std::string& address) {
  constexpr std::array kOthers = {"aer_dev_correctable",
                                  "aer_dev_fatal",
                                  "aer_dev_nonfatal",
                                  "ari_enabled",
                                  "broken_parity_status",
                                  "consistent_dma_mask_bits",
                                  "current_link_speed",
                                  "current_link_width",
                                  "d3cold_allowed",
                                  "dma_mask_bits",
                                  "enable",
                                  "irq",
                                  "local_cpulist",
                                  "local_cpus",
                                  "max_link_speed",
                                  "max_link_width",
                                  "msi_bus",
                                  "power_state",
                                  "remove",
                                  "rescan",
                                  "reset",
                                  "reset_method",
                                  "resource",
                                  "resource0",
                                  "resource1",
                                  "resource3",
                                  "revision",
                                  "rom",
                                  "uevent"};
  for (const char* name : kOthers) {
    kernel.file(std::filesystem::path("sys/devices/pci0000:00") / address / name, "0\n");
  }
}

// Each card: a root port and a switch port above it, a GPU with audio, USB and UCSI, all in one group; every
// other card is on vfio-pci. The rest are disks and network ports, some with virtual functions.
std::vector<std::string> build(FakeKernel& kernel) {
  kernel.add_driver({.name = "pcieport", .ids = {"class:0604"}});
  kernel.add_driver({.name = "nouveau", .ids = {"10de:2684"}});
  kernel.add_driver({.name = "snd_hda_intel", .ids = {"class:0403"}});
  kernel.add_driver({.name = "xhci_hcd", .ids = {"class:0c03"}});
  kernel.add_driver({.name = "nvme", .ids = {"class:0108"}});
  kernel.add_driver({.name = "mlx5_core", .ids = {"class:0200"}});
  must(kernel.load_module("vfio_pci"));
  std::vector<std::string> addresses;
  const auto add = [&](FakeFunction function) {
    addresses.push_back(function.address);
    const std::string address = function.address;
    if (function.driver == "vfio-pci") function.driver_override = function.driver;
    kernel.add_function(function);
    add_the_rest(kernel, address);
  };
  for (unsigned card = 0; card < kCards; ++card) {
    const auto at = [card](unsigned bus, unsigned function) {
      return fmt::format("{:04x}:{:02x}:00.{}", card / 8, 8 + card % 8 * 4 + bus, function);
    };
    const bool away = card % 2 == 1;
    const auto driver = [away](const char* name) { return std::string(away ? "vfio-pci" : name); };
    for (const unsigned bus : {0U, 1U}) {
      add({.address = at(bus, 0),
           .ids = "8086:352a",
           .class_code = 0x060400,
           .group = card,
           .driver = "pcieport",
           .header_type = 1});
    }
    add({.address = at(2, 0),
         .group = card,
         .driver = driver("nouveau"),
         .numa_node = static_cast<int>(card % 2),
         .boot_display = card == 0,
         .consumers = {at(2, 1), at(2, 2), at(2, 3)}});
    add({.address = at(2, 1),
         .ids = "10de:22ba",
         .class_code = 0x040300,
         .group = card,
         .driver = driver("snd_hda_intel")});
    add({.address = at(2, 2),
         .ids = "10de:1ad6",
         .class_code = 0x0c0330,
         .group = card,
         .driver = driver("xhci_hcd")});
    add({.address = at(2, 3), .ids = "10de:1ad7", .class_code = 0x0c8000, .group = card});
  }
  for (unsigned n = 0; addresses.size() < kFunctions; ++n) {
    const std::string address = fmt::format("0010:{:02x}:{:02x}.0", n / 32, n % 32);
    const bool disk = n % 2 == 0;
    add({.address = address,
         .ids = disk ? "144d:a80a" : "15b3:101d",
         .class_code = disk ? 0x010802U : 0x020000U,
         .group = kCards + n,
         .driver = disk ? "nvme" : "mlx5_core",
         .totalvfs = disk ? std::optional<unsigned>() : 8U});
  }
  return addresses;
}

/// What the bare loop does: the system calls, on paths that were made before.
struct Reads {
  std::vector<std::string> files;
  std::vector<std::string> links;
  std::vector<std::string> directories;
};

// What the scan reads, where it is there.
Reads reads_of_a_scan(const FakeKernel& kernel, const std::vector<std::string>& addresses) {
  constexpr std::array kFiles = {"modalias", "config", "numa_node", "boot_vga", "sriov_totalvfs"};
  constexpr std::array kLinks = {"driver", "iommu_group", "physfn"};
  Reads reads;
  const auto bus = kernel.root() / "sys/bus/pci";
  reads.directories = {(bus / "devices").string(), (bus / "drivers").string()};
  for (const std::string& address : addresses) {
    const auto function = bus / "devices" / address;
    reads.directories.push_back(function.string());
    if (std::filesystem::exists(function / "vfio-dev"))
      reads.directories.push_back((function / "vfio-dev").string());
    for (const char* name : kFiles) {
      if (std::filesystem::exists(function / name)) reads.files.push_back((function / name).string());
    }
    for (const char* name : kLinks) {
      if (std::filesystem::is_symlink(function / name)) reads.links.push_back((function / name).string());
    }
  }
  return reads;
}

void require(bool good) {
  if (!good) throw std::runtime_error("the bare loop cannot read the fixture");
}

void bare_loop(const Reads& reads) {
  std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by read
  for (const std::string& path : reads.files) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(fd >= 0 && ::read(fd, buffer.data(), buffer.size()) > 0);
    ::close(fd);
  }
  for (const std::string& path : reads.links) {
    require(::readlink(path.c_str(), buffer.data(), buffer.size()) > 0);
  }
  for (const std::string& path : reads.directories) {
    DIR* directory = ::opendir(path.c_str());
    require(directory != nullptr);
    while (::readdir(directory) != nullptr) {
    }
    ::closedir(directory);
  }
}

int run(int argc, char** argv) {
  FakeKernel kernel;
  const auto addresses = build(kernel);
  const Reads reads = reads_of_a_scan(kernel, addresses);
  const auto scanned = must(vfio::scan(kernel));
  std::size_t on_vfio = 0;
  for (const auto& [address, function] : scanned.functions) {
    require(!function.problem);
    if (vfio::on_vfio_driver(function)) ++on_vfio;
  }
  require(scanned.functions.size() == kFunctions && on_vfio == std::size_t{kCards} / 2 * 3);
  return run_contest(
      {.name = fmt::format("scan of {} functions", kFunctions),
       .baseline = fmt::format("a bare loop over the same {} files, {} links and {} directories",
                               reads.files.size(), reads.links.size(), reads.directories.size()),
       .ours = [&] { require(vfio::scan(kernel).has_value()); },
       .theirs = [&] { bare_loop(reads); },
       .bound = 2.0},
      argc, argv);
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  return ferry::test::run_benchmark(argc, argv, ferry::test::run);
}
