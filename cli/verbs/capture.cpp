// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/capture.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "api/files.h"
#include "common/text/text.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/stuck_writes.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/plan/stable_uuid.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kConventionalBytes = 256;
constexpr std::size_t kEntry = 4;  // the least size of a list's entry, and its alignment

std::uint32_t byte_at(std::string_view config, std::size_t at) {
  return static_cast<std::uint8_t>(config[at]);
}
std::uint32_t word_at(std::string_view config, std::size_t at) {
  return byte_at(config, at) | (byte_at(config, at + 1) << 8U);
}

void blank(std::string& config, std::size_t at, std::size_t count) {
  for (std::size_t i = at; i < std::min(at + count, config.size()); ++i) config[i] = '\0';
}

void blank_vpd(std::string& config) {
  constexpr std::size_t kFirst = 0x34;
  constexpr std::uint32_t kVpd = 0x03;
  constexpr std::size_t kData = 4;
  std::size_t at = byte_at(config, kFirst) & 0xfcU;  // the lower two bits are reserved
  // The space has room for so many entries: a longer list is a loop.
  for (std::size_t left = kConventionalBytes / kEntry; left > 0 && at >= kHeaderBytes; --left) {
    if (byte_at(config, at) == kVpd) blank(config, at + kData, 4);
    at = byte_at(config, at + 1) & 0xfcU;
  }
}

void blank_serial_number(std::string& config) {
  constexpr std::uint32_t kSerialNumber = 0x0003;
  constexpr std::size_t kNumber = 4;
  std::size_t at = kConventionalBytes;
  for (std::size_t left = config.size() / kEntry;
       left > 0 && at >= kConventionalBytes && at + kEntry <= config.size(); --left) {
    if (word_at(config, at) == kSerialNumber) blank(config, at + kNumber, 8);
    at = (word_at(config, at + 2) >> 4U) & 0xffcU;
  }
}

}  // namespace

std::string without_serial_numbers(std::string config) {
  if (config.size() < kConventionalBytes) return config;  // only root can read the capabilities
  // A broken list may lead into blanked bytes, so each list is walked only once.
  blank_vpd(config);
  blank_serial_number(config);
  return config;
}

namespace {

namespace fs = std::filesystem;

// Limits in bytes. An attribute has at most a page, a module table some megabytes, and people send the whole.
constexpr std::size_t kMostOfAFile = std::size_t{64} << 10U;
constexpr std::size_t kMostOfATable = std::size_t{4} << 20U;
constexpr std::uint64_t kMostInAll = std::uint64_t{64} << 20U;

/// Attributes of a PCI function that any user reads without a driver's lock and without a side effect.
constexpr std::array<std::string_view, 30> kFunctionTexts = {"vendor",
                                                             "device",
                                                             "subsystem_vendor",
                                                             "subsystem_device",
                                                             "class",
                                                             "revision",
                                                             "modalias",
                                                             "numa_node",
                                                             "boot_vga",
                                                             "sriov_totalvfs",
                                                             "sriov_offset",
                                                             "sriov_stride",
                                                             "sriov_vf_device",
                                                             "sriov_drivers_autoprobe",
                                                             "reset_method",
                                                             "power_state",
                                                             "d3cold_allowed",
                                                             "enable",
                                                             "resource",
                                                             "ari_enabled",
                                                             "irq",
                                                             "local_cpulist",
                                                             "msi_bus",
                                                             "aer_dev_fatal",
                                                             "aer_dev_nonfatal",
                                                             "aer_dev_correctable",
                                                             "current_link_speed",
                                                             "current_link_width",
                                                             "max_link_speed",
                                                             "max_link_width"};

/// Folders of a PCI function that are captured with their content; all other folders stay empty.
bool is_walked(std::string_view name) {
  constexpr std::array<std::string_view, 7> kWalked = {
      "power", "vfio-dev", "mdev_supported_types", "nvidia", "sriov_admin", "drm", "devices"};
  constexpr std::size_t kUuid = 36;
  return std::ranges::find(kWalked, name) != kWalked.end() || (name.size() == kUuid && name[8] == '-');
}

/// Captured folders that the GPU's own driver serves: a read there waits for that driver.
bool is_the_drivers(std::string_view name) {
  return name != "power" && name != "vfio-dev" && name != "drm";
}

/// Attributes that only take writes or have no information.
bool is_for_writing(std::string_view name) {
  constexpr std::array<std::string_view, 8> kWritten = {
      "create", "remove", "reset", "rescan", "uevent", "remove_id", "new_id", "autosuspend_delay_ms"};
  return std::ranges::find(kWritten, name) != kWritten.end();
}

/// Attributes that identify one device in the world: a screen's EDID has its serial number.
bool names_one_device(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNaming = {"edid", "serial_number", "unique_id", "vpd"};
  return std::ranges::find(kNaming, name) != kNaming.end();
}

std::string_view cut_line(std::string_view& text, char end_of_line = '\n') {
  const auto end = std::min(text.find(end_of_line), text.size());
  const auto line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string kept_lines(std::string_view text, const auto& keep, char end_of_line = '\n') {
  std::string out;
  while (!text.empty()) {
    const auto line = cut_line(text, end_of_line);
    if (keep(line)) out.append(line).append(1, end_of_line);
  }
  return out;
}

// Drops lines such as "GPU UUID: \t GPU-8a2f…", which identify one card in the world.
std::string without_uuids(std::string_view text) {
  return kept_lines(text, [](std::string_view line) { return line.find("UUID") == std::string_view::npos; });
}

// Drops the serial number that some small computers' /proc/cpuinfo has below the processors.
std::string without_serial_lines(std::string_view text) {
  return kept_lines(text, [](std::string_view line) { return !line.starts_with("Serial"); });
}

class Capture {
 public:
  Capture(const HostFs& host, HostWriter& reader, const vfio::AcceleratorRules& rules, fs::path to)
      : host_(host), reader_(reader), rules_(rules), to_(std::move(to)) {}

  Result<Captured> run() {
    if (auto empty = begin(); !empty) return fail(std::move(empty).error());
    acts_ = stuck_writes(host_).value_or(std::vector<StuckWrite>{});
    functions();
    for (const char* folder : {"sys/bus/pci/drivers", "sys/bus/mdev/devices", "sys/bus/mdev/drivers",
                               "sys/class/mdev_bus", "sys/class/iommu", "sys/class/egm"})
      walk(folder, kShallow, Texts::none);
    walk("sys/bus/pci/slots", kDeep, Texts::all);
    walk("sys/class/vfio", kDeep, Texts::all);
    walk("sys/class/vfio-dev", kDeep, Texts::none);
    walk("sys/class/misc/iommu", 0, Texts::none);  // only its presence
    walk("sys/kernel/iommu_groups", kDeep, Texts::all);
    walk("sys/bus", kFlat, Texts::none);
    modules();
    procfs();
    walk("dev/vfio", kDeep, Texts::none);
    nodes();
    walk("run/ferry", kDeep, Texts::all);
    for (const char* folder : kModprobeDirectories) walk(folder, kFlat, Texts::all);
    walk("etc/driverctl.d", kFlat, Texts::all);
    for (const char* folder : {"var/lib/kubelet/device-plugins", "var/lib/kubelet/pod-resources"})
      walk(folder, kFlat, Texts::none);  // names alone: the checkpoint lists every pod's devices
    for (const char* file : {api::kDesiredFile, "sys/kernel/security/lsm", "sys/kernel/security/lockdown",
                             "sys/devices/system/node/online"})
      text(file, kMostOfAFile);
    walk("sys/firmware/acpi/tables", kFlat, Texts::none);
    names_of_devices();
    tables_of_modules();
    if (host_.exists("etc/machine-id")) put("etc/machine-id", std::string(32, '0') + "\n");
    made_by_ferry();
    if (failure_) return fail(std::move(*failure_));
    return std::move(captured_);
  }

 private:
  enum class Texts { none, all };
  static constexpr unsigned kFlat = 1;     // the names in a folder
  static constexpr unsigned kShallow = 2;  // and those one level below
  static constexpr unsigned kDeep = 5;

  Result<> begin() {
    std::error_code error;
    fs::create_directories(to_, error);
    if (error) return fail(error_from_errno(error.value(), "make directory " + to_.string()));
    if (!fs::is_empty(to_, error) || error)
      return fail(Errc::usage, to_.string() + ": something is in it already",
                  "name a folder that is empty, or not there yet");
    return {};
  }

  void put(const fs::path& at, std::string_view content) {
    if (failure_) return;
    if (captured_.bytes + content.size() > kMostInAll) return leave(at, "all in all it would be too much");
    const fs::path file = to_ / at;
    std::error_code error;
    fs::create_directories(file.parent_path(), error);
    std::ofstream out(file, std::ios::binary);
    out << content;
    out.close();
    if (error || !out) failure_ = error_from_errno(error ? error.value() : EIO, "write " + file.string());
    ++captured_.files;
    captured_.bytes += content.size();
  }
  void folder(const fs::path& at) {
    std::error_code error;
    fs::create_directories(to_ / at, error);
    if (error && !failure_)
      failure_ = error_from_errno(error.value(), "make directory " + (to_ / at).string());
  }
  void link(const fs::path& at, const std::string& target) {
    folder(at.parent_path());
    std::error_code error;
    fs::create_symlink(target, to_ / at, error);
    if (error && error != std::errc::file_exists && !failure_)
      failure_ = error_from_errno(error.value(), "link " + (to_ / at).string());
    ++captured_.links;
  }
  void leave(const fs::path& at, std::string_view reason) {
    captured_.left_out.push_back(fmt::format("/{}: {}", at.string(), reason));
  }

  std::optional<std::string> read(const fs::path& at, std::size_t most) {
    auto content = host_.read_file(at);
    if (!content) {
      if (!is_gone(content.error()) && content.error().code != std::errc::permission_denied)
        leave(at, content.error().message);
      return std::nullopt;
    }
    if (content->size() > most) {
      leave(at, fmt::format("{} bytes", content->size()));
      return std::nullopt;
    }
    return std::move(*content);
  }
  void text(const fs::path& at, std::size_t most) {
    if (const auto content = read(at, most)) put(at, *content);
  }

  /// Captures names, links and, with Texts::all, contents of a folder, `depth` folders deep.
  void walk(const fs::path& at, unsigned depth, Texts texts) {
    const auto entries = host_.entries(at);
    if (!entries) return;
    folder(at);
    if (depth == 0) return;
    for (const DirectoryEntry& entry : *entries) {
      const fs::path path = at / entry.name;
      if (const auto target = host_.link_target(path)) {
        link(path, *target);
      } else if (entry.is_directory) {
        walk(path, depth - 1, texts);
      } else if (texts == Texts::all && !is_for_writing(entry.name) && !names_one_device(entry.name)) {
        auto content = read(path, kMostOfAFile);
        put(path, content.value_or(""));
      } else {
        put(path, "");
      }
    }
  }

  bool is_held(const std::string& function) const {
    return std::ranges::any_of(
        acts_, [&](const StuckWrite& act) { return !is_read(act) && concerns(act, function); });
  }

  /// "10de" of "0x10de". The file is empty in a tree that was captured while it could not be read.
  std::string id_in(const fs::path& file) const {
    const std::string text = host_.read_attribute(file).value_or("");
    return text.starts_with("0x") ? text.substr(2) : text;
  }

  void functions() {
    constexpr const char* kDevices = "sys/bus/pci/devices";
    walk(kDevices, kFlat, Texts::none);
    for (const std::string& name : host_.list(kDevices).value_or(std::vector<std::string>{})) {
      const auto target = host_.link_target(fs::path(kDevices) / name);
      if (target) function(name, (fs::path(kDevices) / *target).lexically_normal());
    }
  }

  void function(const std::string& address, const fs::path& at) {
    const auto entries = host_.entries(at);
    if (!entries) return;
    const bool held = is_held(address) || is_held(host_.link_name(at / "physfn").value_or(address));
    unsigned virtual_functions = 0;
    for (const DirectoryEntry& entry : *entries) {
      const fs::path path = at / entry.name;
      const std::string_view name = entry.name;
      if (name.starts_with("virtfn")) ++virtual_functions;
      if (const auto target = host_.link_target(path)) {
        link(path, *target);
      } else if (entry.is_directory) {
        if (vfio::PciAddress::parse(name)) continue;  // captured by its own link in the devices' folder
        if (!is_walked(name)) {
          folder(path);
        } else if (held && is_the_drivers(name)) {
          leave(path, "an earlier write to its GPU has not returned from the kernel");
        } else {
          walk(path, kDeep, Texts::all);
        }
      } else if (name == "driver_override") {
        const auto content = reader_.read(path);  // takes the lock that a hanging driver keeps
        if (!content) leave(path, content.error().message);
        put(path, content ? *content + (content->ends_with('\n') ? "" : "\n") : "(null)\n");
      } else if (name == "sriov_numvfs") {
        numvfs_.push_back(path);  // takes that lock, too: counted from the links instead
      } else if (name == "config") {
        put(path, without_serial_numbers(read(path, kMostOfAFile).value_or("")));
      } else if (std::ranges::find(kFunctionTexts, name) != kFunctionTexts.end() ||
                 (name.starts_with("resource") && name.ends_with("_resize"))) {
        put(path, read(path, kMostOfAFile).value_or(""));
      } else if (name == "serial_number") {
        put(path, "00-00-00-00-00-00-00-00\n");
      } else {
        put(path, "");
      }
    }
    for (const fs::path& path : std::exchange(numvfs_, {})) put(path, fmt::format("{}\n", virtual_functions));
    devices_.push_back(id_in(at / "vendor") + ":" + id_in(at / "device"));
  }

  /// Captures all modules' names, and parameters and users of those that serve devices to VMs.
  void modules() {
    walk("sys/module", kFlat, Texts::none);
    for (const std::string& name : host_.list("sys/module").value_or(std::vector<std::string>{})) {
      const bool ours =
          std::ranges::any_of(std::array{"vfio", "nvidia", "nouveau", "kvm", "iommu", "irqbypass", "mdev"},
                              [&](std::string_view start) { return name.starts_with(start); });
      if (ours) walk(fs::path("sys/module") / name, kShallow, Texts::all);
    }
  }

  void procfs() {
    for (const char* file : {"proc/sys/kernel/osrelease", "proc/sys/kernel/random/boot_id", "proc/modules",
                             "proc/devices", "proc/iomem", "proc/interrupts", "proc/version"})
      text(file, kMostOfATable);
    if (const auto processors = read("proc/cpuinfo", kMostOfATable))
      put("proc/cpuinfo", without_serial_lines(*processors));
    if (const auto line = read("proc/cmdline", kMostOfAFile))
      put("proc/cmdline", without_private_words(*line));
    constexpr const char* kGpus = "proc/driver/nvidia/gpus";
    for (const std::string& gpu : host_.list(kGpus).value_or(std::vector<std::string>{})) {
      const fs::path at = fs::path(kGpus) / gpu;
      folder(at);
      for (const std::string& name : host_.list(at).value_or(std::vector<std::string>{})) {
        // Only `information` is read: `unbindLock` is for the holder of the driver's lock.
        const auto content =
            name == "information" && !is_held(gpu) ? read(at / name, kMostOfAFile) : std::nullopt;
        put(at / name, content ? without_uuids(*content) : "");
      }
    }
  }

  void nodes() {
    for (const DirectoryEntry& entry : host_.entries("dev").value_or(std::vector<DirectoryEntry>{})) {
      const bool ours = entry.name == "iommu" || entry.name == "kvm" || entry.name.starts_with("nvidia") ||
                        entry.name.starts_with("vhost-");
      if (ours && !entry.is_directory) put(fs::path("dev") / entry.name, "");
    }
  }

  void names_of_devices() {
    for (const char* file : {"usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids", "usr/share/pci.ids"})
      if (const auto content = read(file, kMostOfATable)) put(file, only_these_ids(*content, devices_));
  }

  /// Captures the lines of the vfio drivers, and of drivers for this host's vendors.
  void tables_of_modules() {
    const fs::path folder = fs::path("lib/modules") / kernel_release(host_);
    const auto matters = [this](std::string_view line) {
      return line.find("vfio") != std::string_view::npos ||
             std::ranges::any_of(devices_, [&](const std::string& device) {
               std::string vendor = device.substr(0, 4);
               std::ranges::transform(vendor, vendor.begin(),
                                      [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
               return line.find("pci:v0000" + vendor) != std::string_view::npos;
             });
    };
    constexpr std::size_t kMostOfAliases = std::size_t{32} << 20U;
    if (const auto aliases = read(folder / "modules.alias", kMostOfAliases))
      put(folder / "modules.alias", kept_lines(*aliases, matters));
    for (const char* name : {"modules.builtin", "modules.dep"})
      if (const auto content = read(folder / name, kMostOfATable)) put(folder / name, *content);
    if (const auto info = read(folder / "modules.builtin.modinfo", kMostOfAliases))
      put(folder / "modules.builtin.modinfo", kept_lines(*info, matters, '\0'));
  }

  /// Lists the vGPUs that Ferry made, as found in the captured tree, where no read hangs.
  void made_by_ferry() {
    if (host_.exists(mdev::kCapturedVgpus))
      text(mdev::kCapturedVgpus, kMostOfAFile);  // the host is a captured tree
    const auto node = vgpu::node_identity(host_);
    const HostFs captured(to_);
    const auto inventory = vfio::scan(captured);
    if (failure_ || !node || !inventory) return;
    const auto vgpus = vgpu::scan_known_vgpus(captured, *inventory, rules_);
    if (!vgpus) return;
    std::string ours;
    for (const mdev::VgpuGpu& gpu : vgpus->gpus)
      for (const mdev::VgpuDevice& device : gpu.devices)
        if (const auto number = vgpu::our_number(*node, device))
          ours += mdev::captured_line(device.id, *number);
    if (!ours.empty()) put(mdev::kCapturedVgpus, ours);
  }

  const HostFs& host_;
  HostWriter& reader_;
  const vfio::AcceleratorRules& rules_;
  const fs::path to_;
  Captured captured_;
  std::optional<Error> failure_;
  std::vector<StuckWrite> acts_;
  std::vector<fs::path> numvfs_;
  std::vector<std::string> devices_;  // "10de:2684"
};

}  // namespace

Result<Captured> capture_host(const HostFs& host, HostWriter& reader, const vfio::AcceleratorRules& rules,
                              const fs::path& to) {
  return Capture(host, reader, rules, to).run();
}

std::string without_private_words(std::string_view command_line) {
  constexpr std::array<std::string_view, 14> kAskedFor = {
      "iommu", "intel_iommu", "amd_iommu", "vfio",      "pci",   "nvidia", "nouveau",
      "kvm",   "video",       "module_",   "modprobe.", "efifb", "vesafb", "rd.driver."};
  std::string out;
  for (const std::string& word : words_between(command_line.substr(0, command_line.find('\n')), ' ')) {
    const bool asked =
        std::ranges::any_of(kAskedFor, [&](std::string_view start) { return word.starts_with(start); });
    if (!asked) continue;
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out + "\n";
}

std::string only_these_ids(std::string_view pci_ids, const std::vector<std::string>& devices) {
  std::string vendor;
  std::string out;
  bool written = false;
  std::string_view vendor_line;
  while (!pci_ids.empty()) {
    const auto line = cut_line(pci_ids);
    constexpr std::size_t kId = 4;
    if (line.size() < kId + 1 || line.front() == '#') continue;
    if (line.front() != '\t') {
      vendor = line.substr(0, kId);
      vendor_line = line;
      written = false;
    } else if (line[1] != '\t' &&
               std::ranges::find(devices, vendor + ":" + std::string(line.substr(1, kId))) != devices.end()) {
      if (!written) out.append(vendor_line).append("\n");
      written = true;
      out.append(line).append("\n");
    }
  }
  return out;
}

}  // namespace ferry::cli
