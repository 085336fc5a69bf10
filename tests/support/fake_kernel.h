// SPDX-License-Identifier: Apache-2.0
// A host that reacts: a tree of files in which a write has the effect that the Linux kernel gives it.
//
// Each effect is a row of a table (kernel_effects.h) that is run on this fake and on the real kernel in the
// virtual node; a difference fails. Every change of the host (attribute, module, file of ours) is counted and
// recorded, and any one of them can be made to fail, to hang or to be the moment of death.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

struct FakeFunction {
  std::string address;
  std::string ids = "10de:2684";            ///< vendor:device
  std::string subsystem_ids = "10de:16f3";  ///< empty: no subsystem files
  unsigned class_code = 0x030000;
  std::optional<unsigned> group = {};
  std::string driver = {};           ///< a driver that was added before; empty: none
  std::string driver_override = {};  ///< empty: unset
  int numa_node = -1;
  int header_type = 0;  ///< 1: bridge
  std::string physical_function = {};
  std::optional<unsigned> totalvfs = {};  ///< set: the SR-IOV files exist
  unsigned numvfs = 0;                    ///< links to so many; enable_vfs() also makes the functions
  unsigned vf_offset = 4;                 ///< of the first virtual function's routing ID from the GPU's
  std::string vf_ids = {};                ///< of its virtual functions; empty: its own
  bool boot_display = false;
  std::vector<std::string> consumers = {};
};

/// The IDs and the class of a function.
struct FakeKind {
  const char* ids;
  unsigned class_code;
  const char* subsystem_ids = "10de:16f3";
};

/// Kinds that many tests have.
namespace kinds {
inline constexpr FakeKind kTeslaT4{"10de:1eb8", 0x030200};
inline constexpr FakeKind kTeslaT4Board{"10de:1eb8", 0x030200, "10de:12a2"};
inline constexpr FakeKind kL40s{"10de:26b9", 0x030200};
inline constexpr FakeKind kH100{"10de:2330", 0x030200};
inline constexpr FakeKind kNvSwitch{"10de:22a3", 0x068000};
inline constexpr FakeKind kAudio{"10de:22ba", 0x040300};
inline constexpr FakeKind kUsb{"10de:1ad8", 0x0c0330};
inline constexpr FakeKind kDisk{"144d:a80a", 0x010802};
inline constexpr FakeKind kNetworkCard{"15b3:1021", 0x020000};
}  // namespace kinds

struct FakeDriver {
  std::string name;
  std::string module = {};         ///< empty: the name with '-' as '_'
  std::set<std::string> ids = {};  ///< "10de:2684", or "class:0403"; vfio drivers match by override only
  bool vfio = false;
  bool sriov = false;        ///< takes writes to sriov_numvfs; virtual functions go with its binding
  bool leaves_vfs = false;   ///< no, they stay; and it takes none of them, nor does the driver before it
  bool unbind_lock = false;  ///< as driver nvidia: /proc/driver/nvidia/gpus/ADDRESS/unbindLock
};

/// One recorded change of the host.
struct HostChange {
  std::string path;   ///< relative to the root; "module" for a loaded module, "unload", "remove" + path for a
                      ///< removed file
  std::string value;  ///< what was written; a file of ours: its whole content
  bool operator==(const HostChange&) const = default;
};
std::ostream& operator<<(std::ostream& out, const HostChange& change);

class FakeKernel : private ScratchDirectory, public HostFs, public HostWriter {
 public:
  /// A host with an empty PCI bus, a boot id and an IOMMU. vfio_pci can be loaded and is not.
  FakeKernel();

  // -- building a machine (not counted as changes) --
  void add_function(const FakeFunction& function);
  void add_function(const FakeKind& kind, const std::string& address, std::optional<unsigned> group,
                    const std::string& driver = {}, std::optional<unsigned> totalvfs = {}) {
    FakeFunction function{.address = address, .ids = kind.ids, .subsystem_ids = kind.subsystem_ids};
    function.class_code = kind.class_code;
    function.group = group;
    function.driver = driver;
    function.totalvfs = totalvfs;
    add_function(function);
  }
  void remove_function(const std::string& address);  ///< hot-unplug
  /// An attribute says this, and the modalias, which says it too, is not there.
  void overwrite_id(const std::string& address, const std::string& attribute, const std::string& content);
  void add_driver(const FakeDriver& driver);  ///< loaded
  void add_module(const FakeDriver& driver);  ///< comes with load_module()
  /// A module without a PCI driver, loaded, with its parameters; goes with unload_module(), and comes again.
  void add_plain_module(const std::string& name, const std::map<std::string, std::string>& parameters);
  /// Makes all virtual functions of a function, with its vf_ids and class, each in an IOMMU group of its own
  /// where the function has one, and on the function's driver unless sriov_drivers_autoprobe reads 0; or,
  /// with 0, none. As sriov_numvfs does.
  void enable_vfs(const std::string& address, unsigned count);
  /// Takes over the virtual functions in the tree, which a process that has died has made or taken away.
  void adopt_vfs(const std::string& address);
  /// What drivers do with virtual functions that have come or are about to go.
  void on_vfs(std::function<void(const std::string& address)> came,
              std::function<void(const std::string& address)> going);
  void new_boot();  ///< another boot id; run/ is emptied
  using ScratchDirectory::directory;
  using ScratchDirectory::file;
  using ScratchDirectory::link;
  using ScratchDirectory::remove;

  /// Which nodes vfio makes from now on: by default those of groups, in dev/vfio; else, or as well, those of
  /// devices, in dev/vfio/devices.
  struct VfioNodes {
    bool of_groups = true;
    bool of_devices = false;
  };
  void make_vfio_nodes(VfioNodes which) { vfio_nodes_ = which; }

  /// A VFIO user holds this group: host drivers cannot bind to its members. (That an unbind from vfio hangs
  /// then is for hang_change() to say.)
  void own_group(unsigned group, bool owned = true);

  // -- reacting --
  /// errno of the write, 0 for success. `names` are the path's parts that stand where the pattern has "*".
  using Effect = std::function<int(const std::vector<std::string>& names, const std::string& value)>;
  /// Registers what a write to `pattern` does ("sys/bus/pci/drivers/*/bind"). A path without an effect just
  /// keeps what is written to it, as a file would; one that is not there is ENOENT, whatever its effect.
  void on_write(std::string pattern, Effect effect);

  /// What is written to `pattern` returns only after `how_long`, as from a driver that takes its time; other
  /// writes go on meanwhile.
  void take_time(std::string pattern, std::chrono::milliseconds how_long);

  // Several threads may write at a time.
  Result<> write_attribute(const std::filesystem::path& relative, std::string_view value) override;
  Result<> write(const std::filesystem::path& relative, std::string_view value,
                 std::chrono::milliseconds deadline = kWriteDeadline) override;
  Result<> load_module(std::string_view name, std::chrono::milliseconds deadline = kWriteDeadline) override;
  Result<> unload_module(std::string_view name, std::chrono::milliseconds deadline = kWriteDeadline) override;
  /// Recorded as "run" and its words; ENOENT without on_run().
  Result<> run(const HostCommand& command, std::chrono::milliseconds deadline = kWriteDeadline) override;
  /// What programs do: the exit status.
  void on_run(std::function<int(const HostCommand&)> effect) { programs_ = std::move(effect); }
  Result<std::string> read(const std::filesystem::path& relative,
                           std::chrono::milliseconds deadline = kReadDeadline) override;
  /// Recorded as "call/DEVICE/LIBRARY" and the request where it changes something; Errc::unsupported without
  /// on_call().
  Result<std::string> call(const LibraryCall& call,
                           std::chrono::milliseconds deadline = kWriteDeadline) override;
  /// What libraries answer.
  void on_call(std::function<std::string(const LibraryCall&)> answer) { libraries_ = std::move(answer); }
  Result<> write_file(const std::filesystem::path& relative, std::string_view content,
                      mode_t mode = 0644) override;
  Result<> remove_file(const std::filesystem::path& relative) override;

  // -- looking --
  const std::vector<HostChange>& changes() const { return changes_; }
  /// Only the attribute writes, as "VALUE > PATH": what a test of order compares.
  std::vector<std::string> writes() const;
  void forget_changes() { changes_.clear(); }
  std::string driver_of(const std::string& address) const;            ///< "" when none
  std::vector<std::string> vfs_of(const std::string& address) const;  ///< by their numbers
  std::string override_of(const std::string& address) const;

  // -- faults at the n-th change from now, counted from 1; one of each kind, the last that was set --
  void fail_change(std::size_t n, int error);
  /// Whatever does the same again fails too: the same value to the same path, or any content of this file of
  /// ours.
  void fail_for_good(const HostChange& change, int error) { lasting_.emplace_back(change, error); }
  void mend() { lasting_.clear(); }
  /// The change never returns: Errc::stuck. So do all later ones that name the same device, until
  /// release_stuck(). As in the kernel, a function whose unbind hangs shows no driver any more, and one whose
  /// bind hangs shows it already (drivers/base/dd.c).
  void hang_change(std::size_t n);
  void hang_write(const HostChange& change);  ///< the same, by what is written where
  /// A driver outside our books hangs: what the kernel serves under the device's lock cannot be had.
  void hang_device(const std::string& address) { stuck_.insert(address); }
  /// The same for reads alone.
  void hang_read(const std::string& address) { hanging_reads_.insert(address); }
  /// The process ends right before the change, as by SIGKILL. For use in a forked child.
  void die_at_change(std::size_t n);
  enum class Ending { without_effect, with_effect };
  /// What hangs returns; without effect, all is as it was before.
  void release_stuck(Ending ending = Ending::without_effect);
  /// Whether a fault that was set has not been met yet.
  bool fault_waits() const { return !faults_.empty(); }
  /// Those made after the first that hangs; what hangs is none itself.
  std::vector<HostChange> changes_since_hang() const;

 private:
  struct Fault {
    enum class Kind { fail, hang, die };
    Kind kind = Kind::fail;
    int error = 0;  ///< of fail
  };
  void set_fault(std::size_t n, Fault fault);
  /// Counts a change and applies the fault that waits for it; 0 to go on.
  void record_stuck(const std::string& what, std::string_view value);
  int next_change(const std::string& path, const std::string& value, bool& stuck);
  void begin_to_hang(const HostChange& change);
  void show_driver(const std::string& driver, const std::string& address);
  void hide_driver(const std::string& driver, const std::string& address);
  bool bring_module(const std::string& name);
  Result<> react(const std::filesystem::path& relative, std::string_view value);
  void register_pci_effects();
  int set_numvfs(const std::string& address, const std::string& value);
  unsigned free_group() const;
  int bind(const std::string& driver, const std::string& address);
  int unbind(const std::string& driver, const std::string& address);
  int probe(const std::string& address);
  bool may_be_probed(const std::string& address) const;
  int attach(const std::string& driver, const std::string& address);
  void detach(const std::string& address);
  bool matches(const std::string& driver, const std::string& address) const;
  std::optional<unsigned> group_of(const std::string& address) const;
  void put_driver(const FakeDriver& driver);
  /// A loaded driver: this process's own books, or, after a child changed the tree and died, a module whose
  /// driver directory is there. nullptr when not loaded.
  const FakeDriver* loaded_driver(const std::string& name) const;
  std::vector<const FakeDriver*> loaded_drivers() const;
  bool stuck_device(const std::string& path, const std::string& value) const;

  mutable std::recursive_mutex mutex_;  // of all below; effects may ask the kernel again
  std::map<std::string, FakeDriver> drivers_;
  std::map<std::string, FakeDriver> modules_;                                // by module name
  std::map<std::string, std::map<std::string, std::string>> plain_modules_;  // and their parameters
  std::map<std::string, FakeFunction> functions_;
  std::vector<std::pair<std::string, Effect>> effects_;
  std::vector<std::pair<std::string, std::chrono::milliseconds>> slow_;
  std::function<int(const HostCommand&)> programs_;
  std::vector<std::function<void(const std::string&)>> vf_came_;
  std::vector<std::function<void(const std::string&)>> vf_going_;
  std::function<std::string(const LibraryCall&)> libraries_;
  std::set<unsigned> owned_groups_;
  std::vector<HostChange> changes_;
  std::set<std::string> stuck_;
  std::vector<HostChange> hung_;               // what hangs, in order
  std::size_t hung_since_ = 0;                 // the number of changes before
  std::map<std::string, std::string> shown_;   // by address, the drivers of those whose bind hangs
  std::map<std::string, std::string> hidden_;  // and of those whose unbind does
  std::set<std::string> hanging_reads_;
  std::map<std::size_t, Fault> faults_;  // by counted_
  std::vector<std::pair<HostChange, int>> lasting_;
  std::optional<HostChange> hanging_;
  std::size_t counted_ = 0;
  VfioNodes vfio_nodes_;
  std::deque<UniqueFd> last_links_;  // to drivers that have let go: while open their inodes are nobody else's
  std::map<std::string, int> vfio_numbers_;  // of the functions on a vfio driver, the N of vfioN
  int next_pid_ = 70001;
};

}  // namespace ferry::test
