// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/pci_function.h"

#include <algorithm>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/host_directory.h"

namespace ferry::vfio {
namespace {

/// Takes a marker and a number with a given count of hex digits off the front of a text. False: it has none.
bool take(std::string_view& text, std::string_view marker, std::size_t digits, std::uint16_t& into) {
  const std::size_t size = marker.size() + digits;
  if (!text.starts_with(marker) || text.size() < size) return false;
  const auto value = whole_number<std::uint16_t>(text.substr(marker.size(), digits), 16);
  text.remove_prefix(size);
  into = value.value_or(0);
  return value.has_value();
}

}  // namespace

std::optional<PciModalias> parse_pci_modalias(std::string_view text) {
  constexpr std::size_t kId = 8;
  constexpr std::size_t kByte = 2;
  PciModalias modalias;
  if (!take(text, "pci:v", kId, modalias.vendor) || !take(text, "d", kId, modalias.device) ||
      !take(text, "sv", kId, modalias.subsystem_vendor) || !take(text, "sd", kId, modalias.subsystem_device))
    return std::nullopt;
  for (const auto* const part : {"bc", "sc", "i"}) {
    std::uint16_t byte = 0;
    if (!take(text, part, kByte, byte)) return std::nullopt;
    modalias.class_code = modalias.class_code << 8U | byte;
  }
  if (!text.empty()) return std::nullopt;
  return modalias;
}

namespace {

template <typename Number>
Result<Number> parse_number(std::string_view text, const std::filesystem::path& where) {
  const auto value =
      text.starts_with("0x") ? whole_number<Number>(text.substr(2), 16) : whole_number<Number>(text);
  if (value) return *value;
  return fail(Errc::malformed_host, fmt::format("/{}: '{}' is not a number", where.string(), text));
}

/// Reads attributes and keeps the first error as the function's problem.
class Reader {
 public:
  Reader(const HostDirectory& directory, PciFunction& function)
      : directory_(directory), function_(function) {}

  template <typename Number>
  void required(const char* name, Number& into) {
    keep(read_number<Number>(name), into, false);
  }
  template <typename Number>
  void optional(const char* name, std::optional<Number>& into) {
    keep(read_number<Number>(name), into, true);
  }
  void optional_link(const char* name, std::optional<std::string>& into) {
    keep(directory_.link_name(name), into, true);
  }
  void note(Error error) {
    if (!function_.problem) function_.problem = std::move(error);
  }

 private:
  template <typename Number>
  Result<Number> read_number(const char* name) const {
    auto text = directory_.read_attribute(name);
    if (!text) return fail(std::move(text).error());
    return parse_number<Number>(*text, sysfs_path(function_.address) / name);
  }
  template <typename T, typename Into>
  void keep(Result<T> value, Into& into, bool may_be_gone) {
    if (value) {
      into = std::move(*value);
    } else if (!may_be_gone || !is_gone(value.error())) {
      note(std::move(value).error());
    }
  }
  const HostDirectory& directory_;
  PciFunction& function_;
};

// modalias has the values of five attributes, which are read if it is missing, as on a test's host.
void read_ids(const HostDirectory& directory, PciFunction& function, Reader& reader) {
  function.modalias = directory.read_attribute("modalias").value_or("");
  const auto ids = parse_pci_modalias(function.modalias);
  if (ids) {
    function.vendor = ids->vendor;
    function.device = ids->device;
    function.class_code = ids->class_code;
  } else {
    reader.required("vendor", function.vendor);
    reader.required("device", function.device);
    reader.required("class", function.class_code);
  }
  // modalias has zero also for a missing subsystem.
  if (ids && ids->subsystem_vendor != 0) {
    function.subsystem_vendor = ids->subsystem_vendor;
    function.subsystem_device = ids->subsystem_device;
  } else {
    reader.optional("subsystem_vendor", function.subsystem_vendor);
    reader.optional("subsystem_device", function.subsystem_device);
  }
}

/// The header type, or the error that is the function's problem, and what the bus says.
struct HeaderLook {
  Result<HeaderType> type;
  BusLook bus = BusLook::answers;
};

// Byte 0x0e of config space, without the multi-function bit; every user can read the first 64 bytes.
HeaderLook read_header_type(const HostDirectory& directory, const std::filesystem::path& path) {
  const auto config = directory.open("config", O_RDONLY);
  if (!config) return {.type = fail(config.error())};
  // Reads only the bytes that every function defines. The kernel passes a longer read on to the device, and
  // some devices hang at registers that they do not define. ABI: drivers/pci/pci-sysfs.c, pci_read_config().
  constexpr std::size_t kSize = 64;
  std::string header(kSize, '\0');
  const ssize_t size = ::pread(config->get(), header.data(), header.size(), 0);
  if (size < 0) return {.type = fail(error_from_errno(errno, "read /" + (path / "config").string()))};
  header.resize(static_cast<std::size_t>(size));
  constexpr std::size_t kHeaderTypeOffset = 0x0e;
  if (header.size() <= kHeaderTypeOffset) {
    return {.type = fail(Errc::malformed_host,
                         fmt::format("/{}/config: only {}", path.string(), counted(header.size(), "byte")))};
  }
  // A virtual function has no vendor and device in config space, but a header type (SR-IOV 1.1, 3.4.1).
  if (header[0] == '\xff' && header[1] == '\xff' && header[kHeaderTypeOffset] == '\xff') {
    return {.type = fail(Errc::malformed_host,
                         fmt::format("/{}/config: reads all ones; the device is off the bus", path.string())),
            .bus = BusLook::all_ones};
  }
  const auto type = static_cast<std::uint8_t>(header[kHeaderTypeOffset]) & 0x7fU;
  if (type > static_cast<std::uint8_t>(HeaderType::cardbus_bridge)) {
    return {.type = fail(Errc::malformed_host,
                         fmt::format("/{}/config: header type {:#x}", path.string(), type))};
  }
  return {.type = static_cast<HeaderType>(type)};
}

// The class decides for a function in D3cold, which a read would wake. If its power management says that it
// is active, the kernel has tried to wake it and got no answer: it does not sleep, and is read.
// ABI: Documentation/ABI/testing/sysfs-bus-pci (power_state), sysfs-devices-power (runtime_status);
// drivers/pci/pci.c, pci_power_up().
HeaderLook look_at_header(const HostDirectory& directory, const std::filesystem::path& path,
                          std::uint32_t class_code, bool has_power_state) {
  const std::string state =
      has_power_state ? directory.read_attribute("power_state").value_or("") : std::string();
  if (state == "D3cold" && directory.read_attribute("power/runtime_status").value_or("") != "active") {
    constexpr std::uint32_t kPciBridge = 0x0604;
    constexpr std::uint32_t kCardbusBridge = 0x0607;
    const std::uint32_t kind = class_code >> 8U;
    HeaderType type = HeaderType::endpoint;
    if (kind == kPciBridge) type = HeaderType::pci_bridge;
    if (kind == kCardbusBridge) type = HeaderType::cardbus_bridge;
    return {.type = type, .bus = BusLook::asleep};
  }
  HeaderLook look = read_header_type(directory, path);
  if (state == "error" && look.bus == BusLook::answers) look.bus = BusLook::error;
  return look;
}

// Names in the function's directory give five facts without further reads. sriov_numvfs equals the number of
// virtfn links, but its read takes the lock that a hanging driver keeps (drivers/pci/iov.c).
void read_directory(const HostDirectory& directory, const std::vector<std::string>& names,
                    PciFunction& function, Reader& reader) {
  constexpr std::string_view kConsumer = "consumer:pci:";
  constexpr std::string_view kVirtualFunction = "virtfn";
  bool sriov = false;
  for (const std::string& name : names) {
    if (name.starts_with(kConsumer)) {
      if (auto consumer = PciAddress::parse(std::string_view(name).substr(kConsumer.size())))
        function.consumers.push_back(*consumer);
    } else if (name == "vfio-dev") {
      function.vfio_devices = directory.list("vfio-dev").value_or(std::vector<std::string>{});
    } else if (name.starts_with(kVirtualFunction)) {
      ++function.sriov_numvfs;
    } else if (name == "sriov_totalvfs") {
      sriov = true;
    } else if (name == "boot_vga") {
      const std::string boot = directory.read_attribute("boot_vga").value_or("");
      function.boot_display = boot == "1";
      function.boot_display_unread = boot != "0" && boot != "1";
    } else if (name.find("-framebuffer.") != std::string::npos) {
      // ABI: drivers/firmware/sysfb.c makes the platform device below its PCI function since Linux 6.9.
      function.firmware_framebuffer = name;
    }
  }
  if (sriov) reader.required("sriov_totalvfs", function.sriov_totalvfs);
}

void read_dma(const HostFs& host, PciFunction& function) {
  function.leaves_dma = function.sriov_numvfs > 0 && function.driver && function.vfio_devices.empty() &&
                        has_vfio_vfs(host, function.address, *function.driver);
}

Error no_function(const PciAddress& address) {
  return {.code = Errc::not_found, .message = "there is no PCI function " + address.text()};
}

}  // namespace

bool has_vfio_vfs(const HostFs& host, const PciAddress& address, const std::string& driver) {
  const auto path = sysfs_path(address);
  for (unsigned i = 0;; ++i) {
    const auto function = path / fmt::format("virtfn{}", i);
    if (!host.link_name(function)) return false;
    // The first virtual function on this driver decides, since a driver declares it for all its functions.
    if (host.link_name(function / "driver").value_or("") == driver) return host.exists(function / "vfio-dev");
  }
}

std::string PciFunction::ids() const {
  return fmt::format("{:04x}:{:04x}", vendor, device);
}

std::optional<std::string> override_of_another_driver(const PciFunction& function) {
  if (!function.driver || !function.driver_override || function.driver_override == function.driver)
    return std::nullopt;
  return fmt::format("driver_override of {} names {}, while {} is bound", function.address.text(),
                     *function.driver_override, *function.driver);
}

std::string kind_of(const PciFunction& function) {
  if (function.is_bridge()) return "bridge";
  if (function.is_virtual_function()) return "virtual function";
  switch (function.pci_class()) {
    case PciClass::non_volatile_memory:
      return "NVMe disk";
    case PciClass::ethernet:
      return "network";
    case PciClass::vga:
    case PciClass::display_3d:
      return "GPU";
    case PciClass::audio:
      return "audio";
    case PciClass::host_bridge:
    case PciClass::pci_bridge:
      return "bridge";
    case PciClass::bridge_other:
      return "switch";
    case PciClass::usb:
      return "USB";
    case PciClass::serial_bus_other:
      return "USB-C";
    case PciClass::processing_accelerator:
      return "accelerator";
    case PciClass::xga:
    case PciClass::display_other:
      return "display";
  }
  constexpr std::uint32_t kDisplay = 0x03;
  constexpr std::uint32_t kStorage = 0x01;
  if (function.class_code >> 16U == kDisplay) return "display";
  if (function.class_code >> 16U == kStorage) return "disk controller";
  return fmt::format("class {:04x}", function.class_code >> 8U);
}

std::filesystem::path sysfs_path(const PciAddress& address) {
  return std::filesystem::path("sys/bus/pci/devices") / address.text();
}

std::string pcie_root(const HostFs& host, const PciAddress& address) {
  const auto target = host.link_target(sysfs_path(address));
  if (!target) return {};
  for (const auto& part : std::filesystem::path(*target).parent_path())
    if (part.native().starts_with("pci")) return part.string();
  return {};
}

std::string path_text(const PciFunction& function, std::string_view attribute) {
  return fmt::format("/{}/{}", sysfs_path(function.address).string(), attribute);
}

Result<PciFunction> read_function(const HostFs& host, const PciAddress& address) {
  PciFunction function;
  function.address = address;
  const auto path = sysfs_path(address);
  // The names are read first: an attribute that is not among them costs no system call.
  std::vector<std::string> names;
  const auto directory = HostDirectory::open(host, path, names);
  if (!directory) {
    if (is_gone(directory.error())) return fail(no_function(address));
    function.problem = directory.error();
    return function;
  }
  const auto has = [&](std::string_view name) { return std::ranges::binary_search(names, name); };
  Reader reader(*directory, function);

  read_ids(*directory, function, reader);
  HeaderLook look = look_at_header(*directory, path, function.class_code, has("power_state"));
  function.bus = look.bus;
  if (look.type)
    function.header = *look.type;
  else
    reader.note(std::move(look.type).error());
  if (has("driver")) reader.optional_link("driver", function.driver);
  std::optional<std::string> group;
  if (has("iommu_group")) reader.optional_link("iommu_group", group);
  if (group) {
    if (auto number = parse_number<std::uint32_t>(*group, path / "iommu_group")) {
      function.iommu_group = *number;
    } else {
      reader.note(std::move(number).error());
    }
  }
  if (has("numa_node")) reader.optional("numa_node", function.numa_node);
  if (function.numa_node && *function.numa_node < 0) function.numa_node.reset();
  std::optional<std::string> physical;
  if (has("physfn")) reader.optional_link("physfn", physical);
  if (physical)
    if (auto parent = PciAddress::parse(*physical)) function.physical_function = *parent;
  read_directory(*directory, names, function, reader);
  read_dma(host, function);

  // A function that was unplugged while being read is absent, not faulty.
  if (function.problem && !lacks_means(*function.problem) && !host.exists(path))
    return fail(no_function(address));
  return function;
}

void wake(const HostFs& host, PciFunction& function) {
  const auto path = sysfs_path(function.address);
  const auto directory = HostDirectory::open(host, path);
  if (!directory) return;
  HeaderLook look = read_header_type(*directory, path);
  function.bus = look.bus;
  if (!look.type && !function.problem) function.problem = std::move(look.type).error();
}

Result<> read_binding(const HostFs& host, PciFunction& function) {
  const auto directory = HostDirectory::open(host, sysfs_path(function.address));
  if (!directory) return fail(no_function(function.address));
  function.driver.reset();
  Reader(*directory, function).optional_link("driver", function.driver);
  function.vfio_devices = directory->list("vfio-dev").value_or(std::vector<std::string>{});
  read_dma(host, function);
  return {};
}

}  // namespace ferry::vfio
