// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_kernel.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fcntl.h>
#include <ostream>
#include <sstream>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "hostfs/stuck_writes.h"

namespace ferry::test {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kDevices = "sys/devices/pci0000:00";

fs::path device_path(const std::string& address) {
  return fs::path(kDevices) / address;
}
fs::path driver_path(const std::string& driver) {
  return fs::path("sys/bus/pci/drivers") / driver;
}

// The function whose routing ID (bus, device, function) is so many further on.
std::string routing_id_after(const std::string& address, unsigned distance) {
  const auto bus_at = address.find(':') + 1;
  const auto hex = [&](std::size_t at, std::size_t length) {
    return static_cast<unsigned>(std::stoul(address.substr(at, length), nullptr, 16));
  };
  const unsigned id = (hex(bus_at, 2) << 8U) + (hex(bus_at + 3, 2) << 3U) + hex(bus_at + 6, 1) + distance;
  return fmt::format("{}{:02x}:{:02x}.{:x}", address.substr(0, bus_at), id >> 8U, (id >> 3U) & 0x1fU,
                     id & 7U);
}

fs::path unbind_lock_of(const std::string& address) {
  return fs::path("proc/driver/nvidia/gpus") / address / "unbindLock";
}

std::string module_of(const FakeDriver& driver) {
  if (!driver.module.empty()) return driver.module;
  std::string module = driver.name;
  std::replace(module.begin(), module.end(), '-', '_');
  return module;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, '/');) parts.push_back(part);
  return parts;
}

// The parts under the pattern's stars, or nothing when the path does not match.
std::optional<std::vector<std::string>> match(const std::string& pattern, const std::string& path) {
  const auto desired = split(pattern);
  const auto found = split(path);
  if (desired.size() != found.size()) return std::nullopt;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < desired.size(); ++i) {
    if (desired[i] == "*") {
      names.push_back(found[i]);
    } else if (desired[i] != found[i]) {
      return std::nullopt;
    }
  }
  return names;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const HostChange& change) {
  return out << "'" << change.value << "' > " << change.path;
}

FakeKernel::FakeKernel() : HostFs(ScratchDirectory::path()) {
  directory("sys/bus/pci/devices");
  directory("sys/bus/pci/drivers");
  directory("sys/kernel/iommu_groups");
  directory("run");
  file("sys/bus/pci/drivers_probe", "");
  file("proc/sys/kernel/random/boot_id", "5a6b5d5e-0000-4000-8000-000000000001\n");
  utsname system{};
  ::uname(&system);
  file(fs::path("lib/modules") / system.release / "modules.alias",
       "alias pci:v000010DEd*sv*sd*bc03sc*i* nouveau\nalias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n");
  add_module({.name = "vfio-pci", .vfio = true});
  register_pci_effects();
}

void FakeKernel::add_function(const FakeFunction& f) {
  functions_[f.address] = f;
  const auto dir = device_path(f.address);
  const std::string vendor = f.ids.substr(0, 4);
  const std::string device = f.ids.substr(5, 4);
  file(dir / "vendor", "0x" + vendor + "\n");
  file(dir / "device", "0x" + device + "\n");
  std::string subsystem_vendor = "0000";
  std::string subsystem_device = "0000";
  if (!f.subsystem_ids.empty()) {
    subsystem_vendor = f.subsystem_ids.substr(0, 4);
    subsystem_device = f.subsystem_ids.substr(5, 4);
    file(dir / "subsystem_vendor", "0x" + subsystem_vendor + "\n");
    file(dir / "subsystem_device", "0x" + subsystem_device + "\n");
  }
  file(dir / "class", fmt::format("0x{:06x}\n", f.class_code));
  const auto number = [](const std::string& hex) { return std::stoul(hex, nullptr, 16); };
  const std::string alias =
      fmt::format("pci:v{:08X}d{:08X}sv{:08X}sd{:08X}bc{:02X}sc{:02X}i{:02X}", number(vendor), number(device),
                  number(subsystem_vendor), number(subsystem_device), f.class_code >> 16U,
                  (f.class_code >> 8U) & 0xffU, f.class_code & 0xffU);
  file(dir / "modalias", alias + "\n");
  std::string config(64, '\0');
  const auto put = [&](std::size_t at, const std::string& hex) {
    config[at] = static_cast<char>(std::stoul(hex.substr(2, 2), nullptr, 16));
    config[at + 1] = static_cast<char>(std::stoul(hex.substr(0, 2), nullptr, 16));
  };
  put(0x00, vendor);
  put(0x02, device);
  config[0x0e] = static_cast<char>(f.header_type);
  file(dir / "config", config);
  file(dir / "driver_override", (f.driver_override.empty() ? "(null)" : f.driver_override) + "\n");
  file(dir / "numa_node", fmt::format("{}\n", f.numa_node));
  if (f.boot_display) file(dir / "boot_vga", "1\n");
  if (f.totalvfs) {
    file(dir / "sriov_totalvfs", fmt::format("{}\n", *f.totalvfs));
    file(dir / "sriov_numvfs", fmt::format("{}\n", f.numvfs));
    file(dir / "sriov_drivers_autoprobe", "1\n");
    const std::string of_vfs = (f.vf_ids.empty() ? f.ids : f.vf_ids).substr(5, 4);
    file(dir / "sriov_vf_device", fmt::format("{:x}\n", std::stoul(of_vfs, nullptr, 16)));
    for (unsigned i = 0; i < f.numvfs; ++i) link(dir / fmt::format("virtfn{}", i), fmt::format("../vf{}", i));
  }
  if (!f.physical_function.empty()) link(dir / "physfn", fs::path("..") / f.physical_function);
  for (const std::string& consumer : f.consumers) {
    link(dir / ("consumer:pci:" + consumer), "../../virtual/devlink/pci:" + f.address + "--pci:" + consumer);
  }
  link(fs::path("sys/bus/pci/devices") / f.address, fs::path("../../../devices/pci0000:00") / f.address);
  if (f.group) {
    const std::string group = std::to_string(*f.group);
    link(dir / "iommu_group", fs::path("../../../kernel/iommu_groups") / group);
    link(fs::path("sys/kernel/iommu_groups") / group / "devices" / f.address,
         fs::path("../../../../devices/pci0000:00") / f.address);
  }
  if (!f.driver.empty() && attach(f.driver, f.address) != 0) {
    throw std::logic_error("fake driver " + f.driver + " does not take " + f.address);
  }
}

void FakeKernel::overwrite_id(const std::string& address, const std::string& attribute,
                              const std::string& content) {
  file(device_path(address) / attribute, content);
  remove(device_path(address) / "modalias");
}

void FakeKernel::remove_function(const std::string& address) {
  if (!driver_of(address).empty()) detach(address);
  if (const auto group = group_of(address)) {
    const fs::path group_path = fs::path("sys/kernel/iommu_groups") / std::to_string(*group);
    remove(group_path / "devices" / address);
    if (fs::is_empty(root() / group_path / "devices")) remove(group_path);
  }
  remove(fs::path("sys/bus/pci/devices") / address);
  remove(device_path(address));
  functions_.erase(address);
}

std::vector<std::string> FakeKernel::vfs_of(const std::string& address) const {
  std::vector<std::string> out;
  for (unsigned i = 0;; ++i) {
    const auto name = link_name(device_path(address) / fmt::format("virtfn{}", i));
    if (!name) return out;
    out.push_back(*name);
  }
}

namespace {

/// Makes of a GPU's facts those of its virtual function.
void take_vf_ids(FakeFunction& function) {
  if (!function.vf_ids.empty()) function.ids = std::exchange(function.vf_ids, {});
}

}  // namespace

void FakeKernel::enable_vfs(const std::string& address, unsigned count) {
  const auto dir = device_path(address);
  const auto there = vfs_of(address);
  for (unsigned i = 0; i < there.size(); ++i) {
    for (const auto& going : vf_going_) going(there[i]);
    remove_function(there[i]);
    remove(dir / fmt::format("virtfn{}", i));
  }
  const FakeFunction& physical = functions_.at(address);
  const FakeDriver* driver = loaded_driver(driver_of(address));
  for (unsigned i = 0; i < count; ++i) {
    FakeFunction function = physical;
    function.address = routing_id_after(address, physical.vf_offset + i);
    if (physical.group) function.group = free_group();
    function.driver_override.clear();
    if (driver != nullptr && driver->leaves_vfs) function.driver.clear();
    if (read_attribute(dir / "sriov_drivers_autoprobe").value_or("1") == "0") function.driver.clear();
    take_vf_ids(function);
    function.physical_function = address;
    function.totalvfs.reset();
    function.numvfs = 0;
    add_function(function);
    link(dir / fmt::format("virtfn{}", i), fs::path("..") / function.address);
  }
  functions_.at(address).numvfs = count;
  file(dir / "sriov_numvfs", fmt::format("{}\n", count));
  const auto now = vfs_of(address);
  for (const auto& came : vf_came_) {
    for (const std::string& function : now) came(function);
  }
}

void FakeKernel::adopt_vfs(const std::string& address) {
  std::erase_if(functions_, [&](const auto& entry) { return entry.second.physical_function == address; });
  const auto now = vfs_of(address);
  for (const std::string& name : now) {
    FakeFunction function = functions_.at(address);
    take_vf_ids(function);
    function.address = name;
    function.group = group_of(name);
    function.physical_function = address;
    function.totalvfs.reset();
    function.numvfs = 0;
    functions_[name] = function;
  }
  functions_.at(address).numvfs = static_cast<unsigned>(now.size());
}

void FakeKernel::on_vfs(std::function<void(const std::string&)> came,
                        std::function<void(const std::string&)> going) {
  vf_came_.push_back(std::move(came));
  vf_going_.push_back(std::move(going));
}

// drivers/pci/pci-sysfs.c and drivers/pci/iov.c, sriov_numvfs_store().
int FakeKernel::set_numvfs(const std::string& address, const std::string& value) {
  unsigned desired = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), desired);
  if (error != std::errc() || end != value.data() + value.size() || desired > 0xffffU) return EINVAL;
  const auto dir = device_path(address);
  if (desired > std::stoul(read_attribute(dir / "sriov_totalvfs").value_or("0"))) return ERANGE;
  const auto now = vfs_of(address).size();
  if (desired == now) return 0;
  const FakeDriver* driver = loaded_driver(driver_of(address));
  if (driver == nullptr || !driver->sriov) return ENOENT;
  if (desired != 0 && now != 0) return EBUSY;
  enable_vfs(address, desired);
  return 0;
}

unsigned FakeKernel::free_group() const {
  unsigned free = 100;
  for (const std::string& name : list("sys/kernel/iommu_groups").value_or(std::vector<std::string>{}))
    free = std::max(free, static_cast<unsigned>(std::stoul(name)) + 1);
  return free;
}

void FakeKernel::put_driver(const FakeDriver& driver) {
  drivers_[driver.name] = driver;
  // Whoever uses the GPU, the write succeeds; here nobody does, and the lock is given.
  if (driver.unbind_lock) {
    on_write("proc/driver/nvidia/gpus/*/unbindLock", [this](const auto& names, const auto& value) {
      file(unbind_lock_of(names[0]), value + "\n");
      return 0;
    });
  }
  file(driver_path(driver.name) / "bind", "");
  file(driver_path(driver.name) / "unbind", "");
  const std::string module = module_of(driver);
  directory(fs::path("sys/module") / module / "drivers");
  link(fs::path("sys/module") / module / "drivers" / ("pci:" + driver.name),
       fs::path("../../../bus/pci/drivers") / driver.name);
  link(driver_path(driver.name) / "module", fs::path("../../../../module") / module);
  // A driver that comes takes what it matches and nobody has.
  for (const auto& [address, function] : functions_) {
    if (driver_of(address).empty() && matches(driver.name, address) && may_be_probed(address))
      attach(driver.name, address);
  }
}

void FakeKernel::add_driver(const FakeDriver& driver) {
  put_driver(driver);
}

void FakeKernel::add_module(const FakeDriver& driver) {
  modules_[module_of(driver)] = driver;
}

void FakeKernel::add_plain_module(const std::string& name,
                                  const std::map<std::string, std::string>& parameters) {
  plain_modules_[name] = parameters;
  directory(fs::path("sys/module") / name);
  for (const auto& [key, value] : parameters)
    file(fs::path("sys/module") / name / "parameters" / key, value + "\n");
}

void FakeKernel::new_boot() {
  static int boots = 1;
  file("proc/sys/kernel/random/boot_id", fmt::format("5a6b5d5e-0000-4000-8000-{:012}\n", ++boots));
  remove("run");
  directory("run");
}

void FakeKernel::own_group(unsigned group, bool owned) {
  if (owned) {
    owned_groups_.insert(group);
  } else {
    owned_groups_.erase(group);
  }
}

void FakeKernel::on_write(std::string pattern, Effect effect) {
  effects_.emplace_back(std::move(pattern), std::move(effect));
}

void FakeKernel::take_time(std::string pattern, std::chrono::milliseconds how_long) {
  slow_.emplace_back(std::move(pattern), how_long);
}

std::vector<std::string> FakeKernel::writes() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const HostChange& change : changes_) {
    if (change.path.starts_with("sys/")) out.push_back(change.value + " > " + change.path);
  }
  return out;
}

std::string FakeKernel::driver_of(const std::string& address) const {
  return link_name(device_path(address) / "driver").value_or("");
}

std::string FakeKernel::override_of(const std::string& address) const {
  const std::string text = read_attribute(device_path(address) / "driver_override").value_or("(null)");
  return text == "(null)" ? "" : text;
}

void FakeKernel::show_driver(const std::string& driver, const std::string& address) {
  link(device_path(address) / "driver", fs::path("../../../bus/pci/drivers") / driver);
  link(driver_path(driver) / address, fs::path("../../../../devices/pci0000:00") / address);
}

void FakeKernel::hide_driver(const std::string& driver, const std::string& address) {
  const auto link = device_path(address) / "driver";
  if (auto last = open(link, O_PATH | O_NOFOLLOW)) last_links_.push_back(std::move(*last));
  constexpr std::size_t kMost = 16;  // sysfs itself gives no number twice
  if (last_links_.size() > kMost) last_links_.pop_front();
  remove(link);
  remove(driver_path(driver) / address);
}

void FakeKernel::begin_to_hang(const HostChange& change) {
  if (hung_.empty()) hung_since_ = changes_.size();
  hung_.push_back(change);
  const std::string driver = driver_of(change.value);
  const auto unbound = match("sys/bus/pci/drivers/*/unbind", change.path);
  if (unbound && driver == unbound->front()) {
    hide_driver(driver, change.value);
    hidden_.emplace(change.value, driver);
  }
  const auto bound = match("sys/bus/pci/drivers/*/bind", change.path);
  if (bound && driver.empty() && functions_.contains(change.value) && matches(bound->front(), change.value)) {
    show_driver(bound->front(), change.value);
    shown_.emplace(change.value, bound->front());
  }
}

Result<> FakeKernel::write(const fs::path& relative, std::string_view value,
                           std::chrono::milliseconds /*deadline*/) {
  for (const auto& [pattern, how_long] : slow_) {
    if (match(pattern, relative.string())) std::this_thread::sleep_for(how_long);
  }
  const std::lock_guard lock(mutex_);
  bool stuck = false;
  const std::string what = "write /" + relative.string();
  // Like the real one: a path that is not there is not a change.
  if (!exists(relative)) return fail(error_from_errno(ENOENT, what));
  if (const int error = next_change(relative.string(), std::string(value), stuck); error != 0) {
    return fail(error_from_errno(error, what));
  }
  if (stuck) {
    begin_to_hang({.path = relative.string(), .value = std::string(value)});
    record_stuck(what, value);
    return fail(Errc::stuck, what + ": still in the kernel");
  }
  return react(relative, value);
}

Result<std::string> FakeKernel::read(const fs::path& relative, std::chrono::milliseconds /*deadline*/) {
  const std::lock_guard lock(mutex_);
  const bool hangs = std::ranges::any_of(hanging_reads_, [&](const std::string& device) {
    return relative.string().find("/" + device + "/") != std::string::npos;
  });
  if (hangs || stuck_device(relative.string(), {})) {
    const std::string what = "read /" + relative.string();
    record_stuck(what, {});
    return fail(Errc::stuck, what + ": still in the kernel");
  }
  return read_attribute(relative);
}

Result<> FakeKernel::write_attribute(const fs::path& relative, std::string_view value) {
  return write(relative, value, kWriteDeadline);
}

Result<> FakeKernel::react(const fs::path& relative, std::string_view value) {
  std::string text(value);
  if (text.ends_with('\n')) text.pop_back();
  for (const auto& [pattern, effect] : effects_) {
    if (const auto names = match(pattern, relative.string())) {
      int error = EIO;
      try {
        error = effect(*names, text);
      } catch (const std::exception&) {
        // The tree is not one that a kernel would make: a test of strange hosts has changed it.
      }
      if (error != 0) return fail(error_from_errno(error, "write /" + relative.string()));
      return {};
    }
  }
  file(relative, std::string(value) + (value.ends_with('\n') ? "" : "\n"));
  return {};
}

Result<> FakeKernel::load_module(std::string_view name, std::chrono::milliseconds /*deadline*/) {
  const std::lock_guard lock(mutex_);
  bool stuck = false;
  const std::string what = "load module " + std::string(name);
  if (const int error = next_change("module", std::string(name), stuck); error != 0) {
    return fail(error_from_errno(error, what));
  }
  if (stuck) {
    begin_to_hang({.path = "module", .value = std::string(name)});
    record_stuck(what, name);
    return fail(Errc::stuck, what + ": still in the kernel");
  }
  if (!bring_module(std::string(name))) return fail(error_from_errno(ENOENT, what));
  return {};
}

bool FakeKernel::bring_module(const std::string& name) {
  if (const auto plain = plain_modules_.find(name); plain != plain_modules_.end()) {
    add_plain_module(plain->first, std::map(plain->second));
    return true;
  }
  const auto found = modules_.find(name);
  if (found == modules_.end()) return false;
  put_driver(found->second);
  return true;
}

Result<> FakeKernel::unload_module(std::string_view name, std::chrono::milliseconds /*deadline*/) {
  const std::lock_guard lock(mutex_);
  bool stuck = false;
  const std::string what = "unload module " + std::string(name);
  if (const int error = next_change("unload", std::string(name), stuck); error != 0) {
    return fail(error_from_errno(error, what));
  }
  if (stuck) {
    record_stuck(what, name);
    return fail(Errc::stuck, what + ": still in the kernel");
  }
  if (modules_.contains(std::string(name))) throw std::logic_error("no effect is known of " + what);
  const auto users = list(fs::path("sys/module") / name / "holders");
  if (users && !users->empty()) return fail(error_from_errno(EAGAIN, what));
  remove(fs::path("sys/module") / name);
  return {};
}

Result<> FakeKernel::run(const HostCommand& command, std::chrono::milliseconds /*deadline*/) {
  const std::lock_guard lock(mutex_);
  bool stuck = false;
  const std::string what = "run " + command.text();
  if (!programs_) return fail(error_from_errno(ENOENT, what));
  if (const int error = next_change("run", command.text(), stuck); error != 0) {
    return fail(error_from_errno(error, what));
  }
  if (stuck) {
    record_stuck(what, command.device);
    return fail(Errc::stuck, what + ": still in the kernel");
  }
  if (const int status = programs_(command); status != 0)
    return fail(Errc::failed, what + ": it ended with status " + std::to_string(status));
  return {};
}

Result<std::string> FakeKernel::call(const LibraryCall& call, std::chrono::milliseconds /*deadline*/) {
  const std::lock_guard lock(mutex_);
  bool stuck = false;
  if (!libraries_) return fail(Errc::unsupported, call.what + ": no library can be asked");
  if (call.changes) {
    const std::string path = fmt::format("call/{}/{}", call.device, call.name);
    if (const int error = next_change(path, call.request, stuck); error != 0) {
      return fail(error_from_errno(error, call.what));
    }
  }
  if (stuck || stuck_.contains(call.device)) {
    record_stuck(call.what, call.device);
    return fail(Errc::stuck, call.what + ": still in the kernel");
  }
  return libraries_(call);
}

Result<> FakeKernel::write_file(const fs::path& relative, std::string_view content, mode_t mode) {
  const std::lock_guard lock(mutex_);
  bool stuck = false;
  if (const int error = next_change(relative.string(), std::string(content), stuck); error != 0) {
    return fail(error_from_errno(error, "write /" + relative.string()));
  }
  return HostFs::write_file(relative, content, mode);
}

Result<> FakeKernel::remove_file(const fs::path& relative) {
  const std::lock_guard lock(mutex_);
  bool stuck = false;
  if (const int error = next_change("remove " + relative.string(), "", stuck); error != 0) {
    return fail(error_from_errno(error, "remove /" + relative.string()));
  }
  return HostFs::remove_file(relative);
}

std::optional<unsigned> FakeKernel::group_of(const std::string& address) const {
  const auto name = link_name(device_path(address) / "iommu_group");
  unsigned group = 0;
  if (!name || std::from_chars(name->data(), name->data() + name->size(), group).ec != std::errc()) {
    return std::nullopt;
  }
  return group;
}

const FakeDriver* FakeKernel::loaded_driver(const std::string& name) const {
  if (const auto found = drivers_.find(name); found != drivers_.end()) return &found->second;
  for (const auto& [module, driver] : modules_) {
    if (driver.name == name && exists(driver_path(name))) return &driver;
  }
  return nullptr;
}

std::vector<const FakeDriver*> FakeKernel::loaded_drivers() const {
  std::vector<const FakeDriver*> out;
  for (const std::string& name : list("sys/bus/pci/drivers").value_or(std::vector<std::string>{})) {
    if (const FakeDriver* driver = loaded_driver(name)) out.push_back(driver);
  }
  return out;
}

bool FakeKernel::matches(const std::string& driver, const std::string& address) const {
  const std::string desired = override_of(address);
  if (!desired.empty()) return desired == driver;
  const FakeDriver& d = *loaded_driver(driver);
  const FakeFunction& f = functions_.at(address);
  return !d.vfio &&
         (d.ids.contains(f.ids) || d.ids.contains(fmt::format("class:{:04x}", f.class_code >> 8U)));
}

int FakeKernel::attach(const std::string& driver, const std::string& address) {
  const FakeDriver* known = loaded_driver(driver);
  if (known == nullptr) return ENODEV;
  const FakeFunction& function = functions_.at(address);
  const auto group = group_of(address);
  if (known->vfio) {
    if (!group || function.header_type != 0) return EINVAL;
    if (function.numvfs > 0) return EBUSY;
    std::set<int> used;
    for (const auto& [other, number] : vfio_numbers_) used.insert(number);
    int lowest = 0;
    while (used.contains(lowest)) ++lowest;
    vfio_numbers_[address] = lowest;
    directory(device_path(address) / "vfio-dev" / fmt::format("vfio{}", lowest));
    if (vfio_nodes_.of_devices) file(fs::path("dev/vfio/devices") / fmt::format("vfio{}", lowest), "");
    if (vfio_nodes_.of_groups) {
      file("dev/vfio/vfio", "");
      file(fs::path("dev/vfio") / std::to_string(*group), "");
      file(fs::path("sys/class/vfio") / std::to_string(*group) / "dev", fmt::format("244:{}\n", *group));
    }
  } else if (group && owned_groups_.contains(*group)) {
    return EBUSY;
  }
  if (known->unbind_lock) file(unbind_lock_of(address), "0\n");
  show_driver(driver, address);
  return 0;
}

void FakeKernel::detach(const std::string& address) {
  const std::string driver = driver_of(address);
  const FakeDriver* known = loaded_driver(driver);
  const bool vfio = known != nullptr && known->vfio;
  hide_driver(driver, address);
  if (known != nullptr && known->unbind_lock) remove(unbind_lock_of(address));
  if (!vfio) return;
  vfio_numbers_.erase(address);
  remove(device_path(address) / "vfio-dev");
  const auto group = group_of(address);
  // The group's node goes with its last vfio member.
  for (const auto& [other, function] : functions_) {
    const FakeDriver* taken = loaded_driver(driver_of(other));
    if (group_of(other) == group && taken != nullptr && taken->vfio) return;
  }
  if (!group) return;
  remove(fs::path("dev/vfio") / std::to_string(*group));
  remove(fs::path("sys/class/vfio") / std::to_string(*group));
}

int FakeKernel::bind(const std::string& driver, const std::string& address) {
  if (!functions_.contains(address) || !matches(driver, address)) return ENODEV;
  if (!driver_of(address).empty()) return EBUSY;
  return may_be_probed(address) ? attach(driver, address) : ENODEV;
}

// drivers/pci/pci-driver.c, pci_device_can_probe().
bool FakeKernel::may_be_probed(const std::string& address) const {
  const std::string& physical = functions_.at(address).physical_function;
  if (physical.empty() || !override_of(address).empty()) return true;
  return read_attribute(device_path(physical) / "sriov_drivers_autoprobe").value_or("1") != "0";
}

int FakeKernel::unbind(const std::string& driver, const std::string& address) {
  if (!functions_.contains(address) || driver_of(address) != driver) return ENODEV;
  const FakeDriver* known = loaded_driver(driver);
  if (known != nullptr && known->sriov && !known->leaves_vfs && !vfs_of(address).empty())
    enable_vfs(address, 0);
  detach(address);
  return 0;
}

int FakeKernel::probe(const std::string& address) {
  if (!functions_.contains(address)) return ENODEV;
  if (!driver_of(address).empty() || !may_be_probed(address)) return 0;
  for (const FakeDriver* driver : loaded_drivers()) {
    if (!matches(driver->name, address)) continue;
    if (attach(driver->name, address) == 0) return 0;
    // What the driver says is lost; not so what the bus says before it is asked.
    if (!driver->vfio) return EINVAL;
  }
  return 0;  // that nothing matched is no error
}

void FakeKernel::register_pci_effects() {
  on_write("sys/bus/pci/drivers/*/bind",
           [this](const auto& names, const auto& value) { return bind(names[0], value); });
  on_write("sys/bus/pci/drivers/*/unbind",
           [this](const auto& names, const auto& value) { return unbind(names[0], value); });
  on_write("sys/bus/pci/drivers_probe", [this](const auto&, const auto& value) { return probe(value); });
  on_write("sys/bus/pci/devices/*/sriov_numvfs",
           [this](const auto& names, const auto& value) { return set_numvfs(names[0], value); });
  on_write("sys/bus/pci/devices/*/driver_override", [this](const auto& names, const auto& value) {
    constexpr std::size_t kPage = 4096;
    if (value.size() >= kPage - 1) return EINVAL;
    file(device_path(names[0]) / "driver_override", (value.empty() ? "(null)" : value) + "\n");
    return 0;
  });
}

}  // namespace ferry::test
