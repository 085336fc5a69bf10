// SPDX-License-Identifier: Apache-2.0
#include "tests/support/described_host.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct Function {
  std::string address;
  std::string class_code;  ///< six hex digits
  std::string vendor;
  std::string device;
  std::map<std::string, std::string> more;

  std::string get(const std::string& key, const std::string& otherwise = {}) const {
    const auto found = more.find(key);
    return found == more.end() ? otherwise : found->second;
  }
  bool is_bridge() const { return class_code.starts_with("0604"); }
};

struct Driver {
  std::string module;
  bool vfio = false;
};

/// A type of mediated devices, or of vendor-specific VFIO.
struct Type {
  std::string address;
  std::string id;
  std::string framebuffer;
  std::string most;
  std::string available;
  std::string name;
};

struct Entry {
  std::string kind;
  std::string path;
  std::string text;
};

struct Description {
  std::string cpu = "intel";
  std::string command_line;
  std::string release = "6.1.0-described";
  bool iommu = true;
  bool acpi = true;  ///< false: a device tree describes the host
  bool vgpu_host_driver = false;
  std::map<std::string, Driver> drivers;
  std::vector<Function> functions;
  std::vector<Type> mediated;
  std::vector<Type> creatable;
  std::vector<std::pair<std::string, std::string>> vendor_functions;
  std::vector<Entry> entries;
};

Words words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// The rest of a line after its first `count` words.
std::string rest_after(const std::string& line, std::size_t count) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < count && at != std::string::npos; ++i) {
    at = line.find(' ', at);
    if (at != std::string::npos) at = line.find_first_not_of(' ', at);
  }
  return at == std::string::npos ? std::string() : line.substr(at);
}

std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "\\n") == 0) {
      out += '\n';
      i += 1;
    } else if (text.compare(i, 4, "\\x00") == 0) {
      out += '\0';
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string module_of(const std::string& driver) {
  std::string out = driver;
  std::ranges::replace(out, '-', '_');
  return out;
}

Function read_function(const Words& words) {
  const std::string& ids = words.at(3);
  Function out{.address = words.at(1),
               .class_code = words.at(2).size() == 4 ? words.at(2) + "00" : words.at(2),
               .vendor = ids.substr(0, 4),
               .device = ids.substr(5),
               .more = {}};
  for (std::size_t i = 4; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    out.more[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  return out;
}

void read_line(const std::string& line, Description& out) {
  const Words words = words_of(line);
  if (words.empty() || line.starts_with('#')) return;
  const std::string& kind = words.front();
  if (kind == "cpu") {
    out.cpu = words.at(1);
  } else if (kind == "iommu") {
    out.iommu = words.at(1) == "on";
  } else if (kind == "cmdline") {
    out.command_line = rest_after(line, 1);
  } else if (kind == "release") {
    out.release = words.at(1);
  } else if (kind == "noacpi") {
    out.acpi = false;
  } else if (kind == "vgpuhost") {
    out.vgpu_host_driver = true;
  } else if (kind == "driver") {
    Driver& driver = out.drivers[words.at(1)];
    driver.module = module_of(words[1]);
    for (const std::string& word : words) {
      if (word == "vfio") driver.vfio = true;
      if (word.starts_with("module=")) driver.module = word.substr(std::string("module=").size());
    }
  } else if (kind == "fn") {
    out.functions.push_back(read_function(words));
  } else if (kind == "mdev") {
    out.mediated.push_back({.address = words.at(1),
                            .id = words.at(2),
                            .framebuffer = words.at(3),
                            .most = words.at(4),
                            .available = words.at(5),
                            .name = rest_after(line, 6)});
  } else if (kind == "ctype") {
    out.creatable.push_back({.address = words.at(1),
                             .id = words.at(2),
                             .framebuffer = {},
                             .most = {},
                             .available = {},
                             .name = rest_after(line, 3)});
  } else if (kind == "vvf") {
    out.vendor_functions.emplace_back(words.at(1), words.at(2));
  } else if (kind == "file" || kind == "dir" || kind == "link") {
    out.entries.push_back({.kind = kind, .path = words.at(1), .text = unescaped(rest_after(line, 2))});
  } else {
    throw std::runtime_error("no description has such a line: " + line);
  }
}

/// The lines that a line with a range of addresses stands for.
Words lines_of(const std::string& line) {
  static const std::regex range(
      R"(([0-9a-f]{4}:[0-9a-f]{2}:)([0-9a-f]{2})\.([0-7])\.\.([0-9a-f]{2})\.([0-7]))");
  static const std::regex counter(R"(=(\d+)\.\.)");
  std::smatch found;
  if (!std::regex_search(line, found, range)) return {line};
  const auto number = [&](std::size_t device) {
    return 8 * std::stoul(found.str(device), nullptr, 16) + std::stoul(found.str(device + 1));
  };
  Words out;
  for (unsigned long at = number(2); at <= number(4); ++at) {
    std::string one = fmt::format("{}{}{:02x}.{}{}", found.prefix().str(), found.str(1), at / 8, at % 8,
                                  found.suffix().str());
    std::smatch first;
    if (std::regex_search(one, first, counter))
      one = fmt::format("{}={}{}", first.prefix().str(), std::stoul(first.str(1)) + at - number(2),
                        first.suffix().str());
    out.push_back(one);
  }
  return out;
}

Description read_description(const fs::path& path) {
  std::ifstream in(path);
  if (!in.is_open()) throw std::runtime_error("cannot read " + path.string());
  Description out;
  for (std::string line; std::getline(in, line);)
    for (const std::string& one : lines_of(line)) read_line(one, out);
  for (const Function& function : out.functions) {
    const std::string driver = function.get("drv");
    if (driver.empty()) continue;
    const bool vfio = driver == "vfio-pci" || driver == "nvgrace_gpu_vfio_pci";
    out.drivers.try_emplace(driver, Driver{.module = module_of(driver), .vfio = vfio});
  }
  return out;
}

/// Writes a description's tree.
class Writer {
 public:
  Writer(const Description& host, const ScratchDirectory& tree) : host_(host), tree_(tree) {}

  void write() {
    system();
    for (const auto& [name, driver] : host_.drivers) add(name, driver);
    for (const Function& function : host_.functions) add(function);
    for (const Function& function : host_.functions) add_virtual(function);
    for (const Type& type : host_.mediated) add_mediated(type);
    for (const auto& [address, current] : host_.vendor_functions) add_vendor_function(address, current);
    for (const Entry& entry : host_.entries) {
      if (entry.kind == "file") tree_.file(entry.path, entry.text);
      if (entry.kind == "dir") tree_.directory(entry.path);
      if (entry.kind == "link") link(entry.path, entry.text);
    }
  }

 private:
  const Function& function_at(const std::string& address) const {
    const auto found = std::ranges::find(host_.functions, address, &Function::address);
    if (found == host_.functions.end()) throw std::runtime_error("no function is at " + address);
    return *found;
  }
  std::string device_path(const Function& function) const {
    const std::string up = function.get("up");
    const std::string above =
        up.empty() ? "sys/devices/pci" + function.address.substr(0, function.address.size() - 5)
                   : device_path(function_at(up));
    return above + "/" + function.address;
  }
  std::string device_path(const std::string& address) const { return device_path(function_at(address)); }
  /// Both are paths within the tree.
  void link(const fs::path& path, const fs::path& target) const {
    tree_.link(path, target.lexically_relative(path.parent_path()));
  }
  std::vector<std::string> virtual_functions_of(const std::string& address) const {
    std::vector<std::string> out;
    for (const Function& function : host_.functions) {
      if (function.get("pf") == address) out.push_back(function.address);
    }
    return out;
  }

  void system() const {
    for (const char* path :
         {"sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/bus/pci/slots", "sys/kernel/iommu_groups",
          "sys/class/iommu", "run", "etc", "var/lib", "dev/vfio", "proc/1/fd"}) {
      tree_.directory(path);
    }
    tree_.file("sys/bus/pci/drivers_probe", "");
    tree_.file("sys/devices/system/node/online", "0\n");
    tree_.file("proc/sys/kernel/random/boot_id", "11112222-3333-4444-5555-666677778888\n");
    tree_.file("proc/sys/kernel/osrelease", host_.release + "\n");
    tree_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    modules();
    processor();
    const char* const on = host_.cpu == "intel" && host_.iommu ? "intel_iommu=on" : "";
    tree_.file("proc/cmdline",
               (host_.command_line.empty() ? fmt::format("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro {}", on)
                                           : host_.command_line) +
                   "\n");
    tree_.file("proc/devices", "Character devices:\n195 nvidia\n\nBlock devices:\n");
    tree_.file("proc/swaps", "Filename Type Size Used Priority\n");
    tree_.file("proc/1/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
    tree_.file("proc/1/comm", "systemd\n");
    tree_.file("proc/1/cmdline", std::string("/sbin/init\0", 11));
    tree_.file("proc/1/cgroup", "0::/init.scope\n");
    tree_.file("proc/1/stat", "1 (systemd) S 0 1 1 0\n");
    for (const char* path : {"proc/iomem", "proc/1/maps"}) tree_.file(path, "");
  }

  void modules() const {
    const std::string folder = "lib/modules/" + host_.release;
    tree_.file(folder + "/modules.alias",
               "alias pci:v000010DEd*sv*sd*bc03sc*i* nouveau\nalias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n");
    tree_.file(
        folder + "/modules.dep",
        "kernel/drivers/vfio/pci/vfio-pci.ko: kernel/drivers/vfio/vfio.ko\nkernel/drivers/vfio/vfio.ko:\n");
    tree_.file(folder + "/modules.builtin", "");
    tree_.file(folder + "/kernel/drivers/vfio/pci/vfio-pci.ko", "");
    std::string loaded;
    for (const auto& [name, driver] : host_.drivers) loaded += driver.module + " 100 0 - Live 0x0\n";
    tree_.file("proc/modules", loaded);
    const auto is_vfio = [](const auto& driver) { return driver.second.vfio; };
    if (std::ranges::none_of(host_.drivers, is_vfio)) return;
    tree_.directory("sys/module/vfio");
    tree_.file("dev/vfio/vfio", "");
  }

  void processor() const {
    struct Maker {
      const char* cpuinfo;
      const char* interrupts;
      const char* table;
      const char* iommu;
    };
    static const std::map<std::string, Maker> kMakers = {
        {"intel", {"vendor_id\t: GenuineIntel\nflags\t\t: fpu vmx\n", "IR-PCI-MSI 0-edge", "DMAR", "dmar0"}},
        {"amd", {"vendor_id\t: AuthenticAMD\nflags\t\t: fpu svm\n", "IR-PCI-MSI 0-edge", "IVRS", "ivhd0"}},
        {"arm", {"CPU implementer\t: 0x41\n", "ITS-MSI 0 Edge", "IORT", "smmu3.0x1"}},
    };
    const Maker& maker = kMakers.at(host_.cpu);
    tree_.file("proc/cpuinfo", std::string("processor\t: 0\n") + maker.cpuinfo);
    tree_.file("proc/interrupts",
               fmt::format("           CPU0\n  24:          0  {}  x\n", maker.interrupts));
    if (host_.acpi) tree_.file(std::string("sys/firmware/acpi/tables/") + maker.table, "");
    if (!host_.iommu) return;
    const std::string iommu = std::string("sys/devices/virtual/iommu/") + maker.iommu;
    tree_.directory(iommu);
    link(std::string("sys/class/iommu/") + maker.iommu, iommu);
  }

  void add(const std::string& name, const Driver& driver) const {
    const std::string folder = "sys/bus/pci/drivers/" + name;
    const std::string module = "sys/module/" + driver.module;
    tree_.file(folder + "/bind", "");
    tree_.file(folder + "/unbind", "");
    tree_.directory(module + "/drivers");
    link(module + "/drivers/pci:" + name, folder);
    link(folder + "/module", module);
  }

  void add(const Function& function) {
    const std::string path = device_path(function);
    const std::string subsystem = function.get("sub", "0000:0000");
    const auto attribute = [&](const char* name, const std::string& value) {
      tree_.file(path + "/" + name, value + "\n");
    };
    attribute("vendor", "0x" + function.vendor);
    attribute("device", "0x" + function.device);
    attribute("class", "0x" + function.class_code);
    attribute("subsystem_vendor", "0x" + subsystem.substr(0, 4));
    attribute("subsystem_device", "0x" + subsystem.substr(5));
    attribute("revision", "0x" + function.get("rev", "a1"));
    attribute("numa_node", function.get("numa", "-1"));
    attribute("driver_override", function.get("override", "(null)"));
    attribute("modalias", modalias(function, subsystem));
    for (const char* name : {"boot_vga"}) {
      if (const std::string value = function.get(name); !value.empty()) attribute(name, value);
    }
    if (const std::string power = function.get("power"); !power.empty()) attribute("power_state", power);
    if (const std::string reset = function.get("reset"); !reset.empty()) {
      attribute("reset_method", reset);
      attribute("reset", "");
    }
    tree_.file(path + "/config", config_space(function, subsystem));
    link("sys/bus/pci/devices/" + function.address, path);
    if (const std::string total = function.get("totalvfs"); !total.empty()) {
      attribute("sriov_totalvfs", total);
      attribute("sriov_numvfs", std::to_string(virtual_functions_of(function.address).size()));
      attribute("sriov_drivers_autoprobe", "1");
    }
    bind(function, path);
    std::istringstream consumers(function.get("consumers"));
    for (std::string consumer; std::getline(consumers, consumer, ',');) {
      const std::string devlink =
          fmt::format("sys/devices/virtual/devlink/pci:{}--pci:{}", function.address, consumer);
      tree_.directory(devlink);
      link(fmt::format("{}/consumer:pci:{}", path, consumer), devlink);
    }
  }

  static std::string modalias(const Function& function, const std::string& subsystem) {
    const auto upper = [](std::string text) {
      std::ranges::transform(text, text.begin(),
                             [](unsigned char c) { return static_cast<char>(::toupper(c)); });
      return text;
    };
    const std::string code = upper(function.class_code);
    return fmt::format("pci:v0000{}d0000{}sv0000{}sd0000{}bc{}sc{}i{}", upper(function.vendor),
                       upper(function.device), upper(subsystem.substr(0, 4)), upper(subsystem.substr(5)),
                       code.substr(0, 2), code.substr(2, 2), code.substr(4));
  }

  /// The header and a PCI Express capability at 0x78, which is as much of it as Ferry reads of such hosts.
  std::string config_space(const Function& function, const std::string& subsystem) const {
    constexpr std::size_t kExtended = 4096;
    std::string out(kExtended, '\0');
    if (function.get("dead") == "1") {
      out.assign(64, '\xff');
      return out;
    }
    const auto byte = [&](std::size_t at, std::size_t value) { out[at] = static_cast<char>(value); };
    const auto word = [&](std::size_t at, const std::string& hex) {
      const unsigned long value = std::stoul(hex, nullptr, 16);
      byte(at, value & 0xffU);
      byte(at + 1, value >> 8U);
    };
    word(0x00, function.vendor);
    word(0x02, function.device);
    word(0x04, "0406");
    word(0x06, "0010");
    byte(0x08, std::stoul(function.get("rev", "a1"), nullptr, 16));
    for (std::size_t i = 0; i < 3; ++i)
      byte(0x0b - i, std::stoul(function.class_code.substr(2 * i, 2), nullptr, 16));
    byte(0x0e, function.is_bridge() ? 1 : 0);
    if (function.is_bridge()) {
      add_bridge_windows(function, byte);
    } else {
      word(0x2c, subsystem.substr(0, 4));
      word(0x2e, subsystem.substr(5));
    }
    byte(0x34, 0x60);  // the capabilities: power management, then PCI Express
    byte(0x60, 0x01);
    byte(0x61, 0x78);
    byte(0x62, 0x03);
    static const std::map<std::string, unsigned> kPorts = {{"root", 0x42}, {"up", 0x52}, {"down", 0x62}};
    const auto port = kPorts.find(function.get("port"));
    byte(0x78, 0x10);
    byte(0x7a, port == kPorts.end() ? 0x02 : port->second);
    return out;
  }
  template <typename Byte>
  void add_bridge_windows(const Function& bridge, Byte byte) const {
    const auto bus_of = [](const std::string& address) {
      return static_cast<unsigned>(std::stoul(address.substr(address.find(':') + 1, 2), nullptr, 16));
    };
    std::set<unsigned> below;
    for (const Function& function : host_.functions) {
      if (function.get("up") == bridge.address) below.insert(bus_of(function.address));
    }
    byte(0x18, bus_of(bridge.address));
    byte(0x19, below.empty() ? 0 : *below.begin());
    byte(0x1a, below.empty() ? 0 : *below.rbegin());
    for (const auto& [at, value] : {std::pair(0x24, 0x01),
                                    {0x26, 0xf1},
                                    {0x27, 0xff},
                                    {0x2c, 0xff},
                                    {0x2d, 0xff},
                                    {0x2e, 0xff},
                                    {0x2f, 0xff}}) {
      byte(static_cast<std::size_t>(at), static_cast<std::size_t>(value));
    }
  }

  void bind(const Function& function, const std::string& path) {
    const std::string driver = function.get("drv");
    const std::string group = host_.iommu ? function.get("group") : "";
    if (!driver.empty()) {
      link(path + "/driver", "sys/bus/pci/drivers/" + driver);
      link(fmt::format("sys/bus/pci/drivers/{}/{}", driver, function.address), path);
    }
    if (group.empty()) return;
    const std::string folder = "sys/kernel/iommu_groups/" + group;
    link(path + "/iommu_group", folder);
    tree_.directory(folder + "/devices");
    link(fmt::format("{}/devices/{}", folder, function.address), path);
    tree_.file(folder + "/type", "DMA\n");
    if (driver.empty() || !host_.drivers.at(driver).vfio) return;
    const std::string device = fmt::format("vfio{}", vfio_devices_);
    tree_.file(fmt::format("{}/vfio-dev/{}/dev", path, device), fmt::format("511:{}\n", vfio_devices_));
    ++vfio_devices_;
    link("sys/class/vfio-dev/" + device, path + "/vfio-dev/" + device);
    tree_.file("dev/vfio/" + group, "");
    tree_.file(fmt::format("sys/class/vfio/{}/dev", group), fmt::format("241:{}\n", group));
  }

  void add_virtual(const Function& function) const {
    if (host_.vgpu_host_driver && function.get("drv") == "nvidia" && function.get("pf").empty())
      tree_.file(fmt::format("proc/driver/nvidia/gpus/{}/unbindLock", function.address), "0\n");
    const std::vector<std::string> virtuals = virtual_functions_of(function.address);
    for (std::size_t i = 0; i < virtuals.size(); ++i) {
      link(device_path(virtuals[i]) + "/physfn", device_path(function));
      link(fmt::format("{}/virtfn{}", device_path(function), i), device_path(virtuals[i]));
    }
  }

  void add_mediated(const Type& type) const {
    const std::string parent = device_path(type.address);
    const std::string folder = parent + "/mdev_supported_types/" + type.id;
    tree_.file(folder + "/name", type.name + "\n");
    tree_.file(folder + "/description",
               fmt::format(
                   "num_heads=4, frl_config=60, framebuffer={}M, max_resolution=5120x2880, max_instance={}\n",
                   type.framebuffer, type.most));
    tree_.file(folder + "/available_instances", type.available + "\n");
    tree_.file(folder + "/device_api", "vfio-pci\n");
    tree_.file(folder + "/create", "");
    tree_.directory(folder + "/devices");
    link("sys/class/mdev_bus/" + type.address, parent);
    tree_.directory("sys/bus/mdev/devices");
    tree_.directory("sys/bus/mdev/drivers/nvidia-vgpu-vfio");
  }

  void add_vendor_function(const std::string& address, const std::string& current) const {
    const std::string folder = device_path(address) + "/nvidia";
    const std::string gpu = function_at(address).get("pf");
    std::string types;
    for (const Type& type : host_.creatable) {
      if (type.address == address || type.address == gpu) types += type.id + "   : " + type.name + "\n";
    }
    tree_.file(folder + "/current_vgpu_type", current + "\n");
    tree_.file(folder + "/creatable_vgpu_types", current == "0" ? "ID    : vGPU Name\n" + types : "");
    tree_.file(folder + "/vgpu_params", "\n");
  }

  const Description& host_;
  const ScratchDirectory& tree_;
  unsigned vfio_devices_ = 0;
};

}  // namespace

DescribedHost::DescribedHost(const std::string& name) {
  const Description description = read_description(case_file("hosts/" + name + ".host"));
  Writer(description, *this).write();
}

std::vector<std::string> described_hosts() {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(case_file("hosts")))
    out.push_back(entry.path().stem().string());
  std::ranges::sort(out);
  return out;
}

fs::path case_file(const std::string& name) {
  return fs::path(FERRY_CASES) / name;
}

}  // namespace ferry::test
