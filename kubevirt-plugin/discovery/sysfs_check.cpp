// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/sysfs_check.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <unistd.h>

#include <fmt/compile.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/text/text.h"
#include "common/unique_fd.h"
#include "hostfs/host_directory.h"
#include "kubevirt-plugin/discovery/device_nodes.h"
#include "mdev/stuck_gpus.h"
#include "mdev/vendor_vfio.h"

namespace ferry::plugin {
namespace {

bool is_function_itself(const ScannedDevice& advertised) {
  return advertised.kind == DeviceKind::pci_function || advertised.kind == DeviceKind::kata_function;
}

/// The device's directory in sysfs, relative to the host's root.
std::filesystem::path sysfs_path_of(const ScannedDevice& advertised) {
  const bool is_mediated = advertised.kind == DeviceKind::mediated_device;
  return std::filesystem::path(is_mediated ? "sys/bus/mdev/devices" : "sys/bus/pci/devices") /
         advertised.host_name();
}

/// The directory of sysfs that lists the members of the device's IOMMU group, relative to the host's root.
std::filesystem::path group_path_of(const ScannedDevice& advertised) {
  return fmt::format("sys/kernel/iommu_groups/{}/devices", advertised.iommu_group);
}

/// Open directories of a device, for questions about it. A question that needs an absent directory uses its
/// path.
///
/// sysfs gives each device and each group a directory of its own when it appears, and empties the directory
/// when it goes. An entry found here therefore belongs to the device that existed at the time of opening; a
/// missing entry may exist below the path. The list of a removed group is empty, so it counts only if it
/// contains the device. A mediated device that is being removed may stay visible here a moment longer than by
/// its path. ABI: fs/kernfs, as tests/vfio/kernel_effects_test.cpp shows.
struct DeviceDirectories {
  HostDirectory own;
  /// Absent: for a vGPU, whose GPU's says more, or if it cannot be opened.
  std::optional<UniqueFd> config = {};
  /// Reads the file at group_path_of(). Absent: for a mediated device, alone in its group, or if it cannot be
  /// opened.
  std::optional<HostDirectory> group = {};

  static Result<DeviceDirectories> open(const HostFs& host, const ScannedDevice& advertised) {
    auto own = HostDirectory::open(host, sysfs_path_of(advertised));
    if (!own) return fail(std::move(own).error());
    DeviceDirectories opened{.own = std::move(*own)};
    if (is_function_itself(advertised))
      if (auto config = opened.own.open("config", O_RDONLY)) opened.config = std::move(*config);
    if (advertised.kind != DeviceKind::mediated_device)
      if (auto group = HostDirectory::open(host, group_path_of(advertised))) opened.group = std::move(*group);
    return opened;
  }

  bool are_same(const DeviceDirectories& other) const {
    const bool same_group = group && other.group ? group->is_same(*other.group) : !group && !other.group;
    return own.is_same(other.own) && same_group;
  }
};

/// Keeps the open directories of devices that were asked about, since opening them costs a quarter of the
/// question. A device beyond kMostKept closes all of them. Directories of a removed device stay until then or
/// until the next question. Directories in use stay open. Any thread may call.
class KeptDirectories {
 public:
  /// Null: none are kept.
  std::shared_ptr<const DeviceDirectories> kept(const ScannedDevice& advertised) const {
    const std::scoped_lock lock(mutex_);
    const auto found = devices_.find({advertised.host_name(), advertised.iommu_group});
    return found == devices_.end() ? nullptr : found->second;
  }

  /// Opens the directories now and keeps them in place of the earlier ones.
  Result<std::shared_ptr<const DeviceDirectories>> open(const HostFs& host, const ScannedDevice& advertised) {
    const Key key(advertised.host_name(), advertised.iommu_group);
    auto opened = DeviceDirectories::open(host, advertised);
    Devices let_go;  // closing takes as long as opening, so it happens after the lock
    const std::scoped_lock lock(mutex_);
    if (const auto former = devices_.find(key); former != devices_.end())
      let_go.insert(devices_.extract(former));
    if (!opened) return fail(std::move(opened).error());
    if (devices_.size() >= SysfsCheck::kMostKept) devices_.swap(let_go);
    auto now = std::make_shared<const DeviceDirectories>(std::move(*opened));
    devices_.emplace(key, now);
    return now;
  }

 private:
  using Key = std::pair<std::string, std::uint32_t>;  // its name in sysfs and its group
  using Devices = std::map<Key, std::shared_ptr<const DeviceDirectories>>;

  mutable std::mutex mutex_;
  Devices devices_;
};

/// PCI vendors of accelerators.
using Vendors = std::vector<std::uint16_t>;

/// The device's own driver; absent: none.
Result<std::optional<std::string>> read_driver(const HostDirectory& directory) {
  auto driver = directory.link_name("driver");
  if (driver) return std::move(*driver);
  if (is_gone(driver.error())) return std::nullopt;
  return fail(std::move(driver).error());
}

/// `own_nodes`: the functions' own nodes can be used. Without them, a function whose driver allows viability
/// needs no further read.
GroupMember read_member(const HostFs& host, const HostDirectory& directory, const vfio::PciAddress& address,
                        const Vendors& vendors, const ScannedDevice& advertised,
                        std::optional<std::string> driver, bool own_nodes) {
  vfio::PciFunction function;
  function.driver = std::move(driver);
  if (own_nodes || vfio::blocks_viability(function))
    function.vfio_devices = directory.list("vfio-dev").value_or(std::vector<std::string>{});
  if (vfio::blocks_viability(function))
    function.leaves_dma = vfio::has_vfio_vfs(host, address, function.driver.value_or(""));
  GroupMember member{.address = address,
                     .driver = function.driver.value_or(""),
                     .usable = !vfio::blocks_viability(function)};
  if (!own_nodes || function.vfio_devices.empty()) return member;

  // Its own node counts if its vendor is one of `vendors`, or that of the advertised device's model,
  // "1002:73bf".
  const auto vendor = directory.read_attribute("vendor");
  if (!vendor) return member;
  const bool is_own = advertised.kind == DeviceKind::pci_function && vendor->starts_with("0x") &&
                      advertised.model.starts_with(vendor->substr(2) + ":");
  if (is_own ||
      std::ranges::any_of(vendors, [&](std::uint16_t id) { return *vendor == fmt::format("{:#06x}", id); }))
    member.vfio_device = function.vfio_devices.front();
  return member;
}

/// Reads a group's members with few reads; a scan reads far more of each. `own_driver` is already known.
Result<std::vector<GroupMember>> read_members(const HostFs& host, const ScannedDevice& advertised,
                                              const DeviceDirectories& directories,
                                              const std::optional<std::string>& own_driver,
                                              const Vendors& vendors) {
  const bool own_nodes = host.exists(kIommufd);
  auto names = directories.group ? directories.group->list(".") : host.list(group_path_of(advertised));
  if (!names) return fail(std::move(names).error());
  std::vector<GroupMember> members;
  for (const auto& name : *names) {
    const auto address = vfio::PciAddress::parse(name);
    if (!address) continue;
    const bool is_own = name == advertised.host_name();
    std::optional<HostDirectory> others;
    std::optional<std::string> driver = own_driver;
    if (!is_own) {
      auto opened = HostDirectory::open(host, vfio::sysfs_path(*address));
      if (!opened && is_gone(opened.error())) continue;
      if (!opened) return fail(std::move(opened).error());
      others = std::move(*opened);
      auto read = read_driver(*others);
      if (!read) return fail(std::move(read).error());
      driver = std::move(*read);
    }
    auto member = read_member(host, others ? *others : directories.own, *address, vendors, advertised,
                              std::move(driver), own_nodes);
    // A virtual function stays on its vendor's driver, which need not show as a vfio driver.
    if (is_own && advertised.kind == DeviceKind::vendor_vgpu) member.usable = true;
    members.push_back(std::move(member));
  }
  if (std::ranges::find(*names, advertised.host_name()) == names->end())
    return fail(Errc::differs, fmt::format("it is not of IOMMU group {} any more", advertised.iommu_group));
  std::ranges::sort(members, {}, &GroupMember::address);
  return members;
}

Result<> expect(std::string_view what, Result<std::string> now, const std::string& then) {
  if (!now) return fail(std::move(now).error().during(fmt::format("{} was {}", what, then)));
  if (*now != then) return fail(Errc::differs, fmt::format("{} is {} now and was {}", what, *now, then));
  return {};
}

Result<std::string> ids_now(const HostDirectory& function) {
  auto vendor = function.read_attribute("vendor");
  if (!vendor) return fail(std::move(vendor).error());
  auto device = function.read_attribute("device");
  if (!device) return fail(std::move(device).error());
  const auto digits = [](const std::string& text) { return text.starts_with("0x") ? text.substr(2) : text; };
  return digits(*vendor) + ":" + digits(*device);
}

using Header = std::vector<unsigned char>;

// The header begins with vendor and device, which are all ones for a virtual function. Its fifteenth byte is
// the header type.
Result<Header> read_header(const UniqueFd& config) {
  Header header(16);
  const ssize_t size = ::pread(config.get(), header.data(), header.size(), 0);
  if (size < 0) return fail(error_from_errno(errno, "read its config space"));
  header.resize(static_cast<std::size_t>(size));
  return header;
}

Result<Header> read_header(const HostDirectory& function) {
  const auto config = function.open("config", O_RDONLY);
  if (!config) return fail(config.error());
  return read_header(*config);
}

bool is_off_the_bus(const Header& header) {
  return !header.empty() && std::ranges::all_of(header, [](unsigned char c) { return c == 0xff; });
}

Result<> expect_same_function(const HostDirectory& function, const Result<Header>& header,
                              const std::string& model) {
  if (header && is_off_the_bus(*header))
    return fail(Errc::malformed_host, "its config space reads all ones: it is off the bus");
  const bool same = header && header->size() >= 4 &&
                    model == fmt::format(FMT_COMPILE("{:02x}{:02x}:{:02x}{:02x}"), (*header)[1], (*header)[0],
                                         (*header)[3], (*header)[2]);
  // If the header does not say, or a quirk has corrected it, the kernel's IDs count.
  if (!same)
    if (auto model_now = expect("its model", ids_now(function), model); !model_now) return model_now;
  if (!header) return fail(header.error());
  return {};
}

/// The pod gets the companions' addresses, so each must be unchanged and usable by a VM.
Result<> expect_companions(const HostFs& host, const ScannedDevice& advertised,
                           std::span<const GroupMember> members) {
  for (const auto& companion : advertised.companions) {
    const auto during = [&] { return "its companion " + companion.address; };
    const auto member = std::ranges::find_if(
        members, [&](const GroupMember& one) { return one.address.text() == companion.address; });
    if (member == members.end())
      return fail(
          Error{.code = Errc::differs, .message = "it is not of the GPU's IOMMU group any more"}.during(
              during()));
    const std::string driver = member->driver.empty() ? "none" : member->driver;
    if (auto same = expect("its driver", driver, companion.driver); !same)
      return fail(std::move(same).error().during(during()));
    auto directory = HostDirectory::open(host, vfio::sysfs_path(member->address));
    if (!directory) return fail(std::move(directory).error().during(during()));
    if (auto same = expect_same_function(*directory, read_header(*directory), companion.model); !same)
      return fail(std::move(same).error().during(during()));
  }
  return {};
}

/// Asks about a vGPU's GPU, which may be gone while its driver still reports the vGPU. True: a write to the
/// GPU is in progress, which blocks reads of its driver's data. Errors: the GPU is off the bus, the write
/// concerns this vGPU, or it may never return.
Result<bool> gpu_is_written_to(const HostFs& host, const ScannedDevice& advertised) {
  if (advertised.gpu.empty()) return false;  // the usual case, which needs no PCI address
  const auto gpu = vfio::PciAddress::parse(advertised.gpu);
  if (!gpu) return false;
  const auto stuck = mdev::StuckGpus::read(host);
  if (!stuck) return fail(stuck.error());
  if (stuck->is_on(advertised.id) || stuck->is_late(host, *gpu)) return fail(mdev::stuck_error(*gpu));
  const auto directory = HostDirectory::open(host, vfio::sysfs_path(*gpu));
  if (!directory) return fail(Error(directory.error()).during("its GPU " + advertised.gpu));
  const auto header = read_header(*directory);
  if (header && is_off_the_bus(*header)) {
    return fail(
        Errc::malformed_host,
        fmt::format("its GPU {}: its config space reads all ones: it is off the bus", advertised.gpu));
  }
  return stuck->contains(host, *gpu);
}

Result<> expect_same_kind(const HostFs& host, const ScannedDevice& advertised,
                          const DeviceDirectories& directories) {
  const auto unread = gpu_is_written_to(host, advertised);
  if (!unread) return fail(unread.error());
  if (is_function_itself(advertised))
    return expect_same_function(
        directories.own, directories.config ? read_header(*directories.config) : read_header(directories.own),
        advertised.model);
  if (*unread) return {};

  if (advertised.kind == DeviceKind::mediated_device) {
    // The type is compared by the driver's name for it, as mdev/ reads it, or else by its directory.
    const auto path = sysfs_path_of(advertised);
    auto name = host.read_attribute(path / "mdev_type/name");
    if (name) name = std::string(trimmed(*name));
    const bool nameless = name ? name->empty() : is_gone(name.error());
    return nameless ? expect("its vGPU type", host.link_name(path / "mdev_type"), advertised.vgpu_type)
                    : expect("its model", std::move(name), advertised.model);
  }
  const auto address = vfio::PciAddress::parse(advertised.id);
  if (!address) return fail(address.error());
  auto type = host.read_attribute(mdev::current_type_path(*address));
  if (type) type->resize(type->find_last_not_of(" \t") + 1);
  return expect("its vGPU type", std::move(type), advertised.vgpu_type);
}

/// Looks again at each question, because the device is about to be allocated.
NodeIsThere is_there_now(const HostFs& host) {
  return [&host](const std::string& node) { return host.exists(node.c_str()); };
}

Result<std::vector<std::string>> nodes_now(const HostFs& host, const Vendors& vendors,
                                           const ScannedDevice& advertised,
                                           const DeviceDirectories& directories, GroupNode group_node) {
  if (auto same = expect_same_kind(host, advertised, directories); !same)
    return fail(std::move(same).error());
  if (auto same = expect("its IOMMU group", directories.own.link_name("iommu_group"),
                         std::to_string(advertised.iommu_group));
      !same)
    return fail(std::move(same).error());
  auto driver = read_driver(directories.own);
  if (!driver) return fail(std::move(driver).error());
  if (!advertised.driver.empty() && driver->value_or("none") != advertised.driver) {
    return fail(Errc::differs,
                fmt::format("its driver is {} now and was {}", driver->value_or("none"), advertised.driver));
  }

  std::vector<GroupMember> members;
  if (advertised.kind != DeviceKind::mediated_device) {
    auto read = read_members(host, advertised, directories, *driver, vendors);
    if (!read) return fail(std::move(read).error());
    members = std::move(*read);
    if (auto problem = group_problem(advertised.iommu_group, members); !problem.empty())
      return fail(Errc::refused, std::move(problem));
    if (auto same = expect_companions(host, advertised, members); !same) return fail(std::move(same).error());
  }

  if (advertised.kind == DeviceKind::kata_function) {
    // A later binding may have given its number to another function.
    const auto own = host.list(sysfs_path_of(advertised) / "vfio-dev");
    auto key = kata_key(is_there_now(host), advertised.iommu_group, own.value_or(std::vector<std::string>{}));
    if (auto same = expect("its number for Kata", std::move(key.id), advertised.id); !same)
      return fail(std::move(same).error());
    if (key.nodes.empty()) return fail(Errc::not_found, std::move(key.missing));
    return std::move(key.nodes);
  }
  auto nodes = vfio_nodes(is_there_now(host), advertised.iommu_group, members, group_node);
  if (nodes.empty()) return fail(Errc::not_found, missing_nodes(advertised.iommu_group));
  return nodes;
}

std::vector<std::string> shared_nodes(const HostFs& host, const std::vector<ScannedDevice>& devices) {
  std::vector<std::string> nodes;
  if (!host.exists("sys/class/egm")) return nodes;
  for (const auto& name : host.list("sys/class/egm").value_or(std::vector<std::string>{})) {
    if (!name.starts_with("egm")) continue;
    const auto text = host.read_attribute("sys/class/egm/" + name + "/gpu_devices").value_or("");
    std::istringstream words(text);
    const std::vector<std::string> gpus{std::istream_iterator<std::string>(words), {}};
    const bool all = std::ranges::all_of(gpus, [&](const std::string& gpu) {
      const auto address = vfio::PciAddress::parse(gpu);
      return address && std::ranges::any_of(devices, [&](const ScannedDevice& device) {
               return device.kind != DeviceKind::kata_function && device.host_name() == address->text();
             });
    });
    // A runtime creates no container whose node is missing. The node exists once the kernel has its number.
    if (all && !gpus.empty() && host.exists("sys/class/egm/" + name + "/dev"))
      nodes.push_back("/dev/" + name);
  }
  return nodes;
}

}  // namespace

int SysfsCheck::open_and_close(const HostFs& host, std::uint32_t group) {
  const auto opened = host.open(fmt::format(FMT_COMPILE("dev/vfio/{}"), group), O_RDWR);
  return opened ? 0 : opened.error().code.value();
}

/// Data of its own, since an errand may outlive the SysfsCheck.
struct SysfsCheck::Source {
  Source(const HostFs& whose, const ResourceRules& rules, Opener how)
      : host(whose.root()),
        vendors(rules.accelerators.vendors.begin(), rules.accelerators.vendors.end()),
        opener(std::move(how)) {}

  const HostFs host;
  const Vendors vendors;
  const Opener opener;
  mutable KeptDirectories directories;
  mutable std::atomic<bool> warned = false;
};

SysfsCheck::SysfsCheck(const HostFs& host, const ResourceRules& rules, std::chrono::milliseconds deadline,
                       Opener opener)
    : source_(std::make_shared<Source>(host, rules, std::move(opener))), errands_(deadline) {}

/// A question to the host, with the answer for the case that the host does not finish.
class SysfsCheck::Inquiry {
 public:
  /// The question names at least one group.
  Inquiry(std::shared_ptr<const Source> source, HandOut what)
      : source_(std::move(source)), what_(std::move(what)), at_(At{.group = *what_.groups.begin()}) {}

  const std::set<std::uint32_t>& groups() const { return what_.groups; }

  /// Runs on the asking thread.
  void ask(const GroupErrands::MayGoOn& may_go_on) {
    try {
      ask_all(may_go_on);
    } catch (const std::exception& error) {  // out of memory, or an error of a library
      spdlog::error("asking the host about IOMMU groups: {}", error.what());
    }
  }
  /// Runs on the thread that ends the question; the asking thread may still be writing.
  HostAnswer answer(const GroupErrands::End& end) {
    const std::scoped_lock lock(mutex_);
    HostAnswer answer = end.done ? std::move(answer_) : answer_;
    if (end.behind) at_ = At{.group = *end.behind};
    if (at_) answer.groups[at_->group] = at_->when_late;
    if (forbidden_ && !source_->warned.exchange(true)) {
      spdlog::warn(
          "/dev/vfio/{} may not be opened: a device that its pod has released is allocated again at once, "
          "though a VM may still have it. Outside the chart, let the container open these files; SECURITY.md "
          "says why the chart's may not",
          *forbidden_);
    }
    return answer;
  }

 private:
  void ask_all(const GroupErrands::MayGoOn& may_go_on) {
    for (const auto group : what_.groups)
      if (!may_go_on(group) || !is_closed(group)) return;
    std::vector<HostAnswer::Container> containers;
    for (const auto& devices : what_.containers) {
      auto& container = containers.emplace_back();
      for (const auto& device : devices) {
        if (!may_go_on(device.iommu_group)) return;
        container.nodes.push_back(ask_about(device));
      }
      container.shared = shared_nodes(source_->host, devices);
    }
    const std::scoped_lock lock(mutex_);
    at_.reset();
    answer_.containers = std::move(containers);
  }

  /// The group of the present step, and its state if the host does not answer.
  struct At {
    std::uint32_t group = 0;
    GroupState when_late = GroupState::silent;
  };

  bool is_closed(std::uint32_t group) {
    turn_to({.group = group, .when_late = GroupState::open});  // no answer counts as open
    const int error = source_->opener(source_->host, group);
    if (error == 0) opened_.insert(group);
    const std::scoped_lock lock(mutex_);
    if (error == EBUSY) {
      answer_.groups[group] = GroupState::open;
      at_.reset();
      return false;
    }
    // This process or the kernel lacks resources, and a later try will tell.
    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR) {
      answer_.groups[group] = GroupState::silent;
      at_.reset();
      return false;
    }
    if (error == EPERM || error == EACCES) forbidden_ = group;
    answer_.groups[group] = GroupState::closed;
    at_ = At{.group = group};
    return true;
  }

  Result<std::vector<std::string>> ask_about(const ScannedDevice& device) {
    turn_to({.group = device.iommu_group});
    const auto group_node = opened_.contains(device.iommu_group) ? GroupNode::is_there : GroupNode::unknown;
    const auto ask_in = [&](const DeviceDirectories& directories) {
      return nodes_now(source_->host, source_->vendors, device, directories, group_node);
    };
    try {
      const auto kept = source_->directories.kept(device);
      std::optional<Result<std::vector<std::string>>> nodes;
      if (kept != nullptr) nodes = ask_in(*kept);
      if (nodes && *nodes) return std::move(*nodes);
      // The device may be gone, and another may have its name.
      const auto now = source_->directories.open(source_->host, device);
      if (!now) return fail(Error(now.error()).during(fmt::format("its model was {}", device.model)));
      if (nodes && (*now)->are_same(*kept)) return std::move(*nodes);
      return ask_in(**now);
    } catch (const std::exception& error) {  // out of memory, or an error of a library
      return fail(Errc::malformed_host, error.what());
    }
  }

  void turn_to(At next) {
    const std::scoped_lock lock(mutex_);
    at_ = next;
  }

  const std::shared_ptr<const Source> source_;
  const HandOut what_;
  std::set<std::uint32_t> opened_;

  std::mutex mutex_;
  HostAnswer answer_;
  std::optional<At> at_;  // none: all steps are done
  std::optional<std::uint32_t> forbidden_;
};

void SysfsCheck::ask(HandOut what, Answered answered) const {
  const auto inquiry = std::make_shared<Inquiry>(source_, std::move(what));
  errands_.run(
      inquiry->groups(), [inquiry](const GroupErrands::MayGoOn& may_go_on) { inquiry->ask(may_go_on); },
      [inquiry, answered = std::move(answered)](const GroupErrands::End& end) {
        answered(inquiry->answer(end));
      });
}

/// Asks about the groups in parallel, so that a group without an answer does not hide the others.
std::set<std::uint32_t> SysfsCheck::open_groups(const std::set<std::uint32_t>& groups) const {
  std::map<std::uint32_t, std::future<HostAnswer>> answers;
  for (const auto group : groups) {
    const auto inquiry = std::make_shared<Inquiry>(source_, HandOut{.groups = {group}, .containers = {}});
    const auto promise = std::make_shared<std::promise<HostAnswer>>();
    answers.emplace(group, promise->get_future());
    errands_.begin(
        {group}, [inquiry](const GroupErrands::MayGoOn& may_go_on) { inquiry->ask(may_go_on); },
        [inquiry, promise](const GroupErrands::End& end) { promise->set_value(inquiry->answer(end)); });
  }
  std::set<std::uint32_t> open;
  for (auto& [group, answer] : answers) {
    const auto said = answer.get().groups;
    const auto state = said.find(group);
    if (state == said.end() || state->second != GroupState::closed) open.insert(group);
  }
  return open;
}

std::optional<std::uint32_t> SysfsCheck::group_of(std::string_view id) const {
  const auto linked = [&](const std::filesystem::path& device) {
    return whole_number(source_->host.link_name(device / "iommu_group").value_or(""));
  };
  if (const auto address = vfio::PciAddress::parse(id)) return linked(vfio::sysfs_path(*address));
  constexpr std::size_t kLengthOfUuid = 36;
  const bool is_uuid =
      id.size() == kLengthOfUuid && id.find_first_not_of("0123456789abcdefABCDEF-") == std::string_view::npos;
  if (is_uuid) return linked(std::filesystem::path("sys/bus/mdev/devices") / id);
  const auto number = whole_number(id);
  if (!number) return std::nullopt;
  // The number means the function's own node if the host has such nodes, else the group, as in kata_key().
  if (source_->host.exists(kIommufd))
    if (const auto own = linked(fmt::format("sys/class/vfio-dev/vfio{}/device", *number))) return own;
  return group_numbered(id);
}

std::optional<std::uint32_t> SysfsCheck::group_numbered(std::string_view id) const {
  const auto number = whole_number(id);
  const bool there = number && source_->host.exists(fmt::format("sys/kernel/iommu_groups/{}", *number));
  return there ? number : std::nullopt;
}

}  // namespace ferry::plugin
