// SPDX-License-Identifier: Apache-2.0

// A device plugin in Go that does of what NVIDIA's does (kubevirt-gpu-device-plugin v1.6.0) what the kubelet waits
// for: it reads the host's functions before it serves, and at an Allocate, on a host without /dev/iommu, the IOMMU
// group and the vendor of each device that is asked for, whether there is a /dev/iommu, and what has extended memory.
// It has less to do than NVIDIA's: no names, no lists that change, no health. It is built with Debian 12's Go (1.19)
// and gRPC (1.33), which are older than NVIDIA's.
//
// usage: go_plugin DIRECTORY RESOURCES HOST: the accelerators of HOST, dealt out over nvidia.com/GO_0 and on
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc"

	"deviceplugin/v1beta1"
)

const vendor = "0x10de"

type host string

func (h host) function(address, name string) string {
	return filepath.Join(string(h), "sys/bus/pci/devices", address, name)
}

func (h host) group(address string) (string, error) {
	target, err := os.Readlink(h.function(address, "iommu_group"))
	return filepath.Base(target), err
}

func (h host) isVendors(address string) bool {
	text, err := os.ReadFile(h.function(address, "vendor"))
	return err == nil && strings.TrimSpace(string(text)) == vendor
}

// groups gives the functions that are the vendor's and vfio-pci's, in order, and the group of each.
func (h host) groups() (addresses []string, groups map[string]string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(h), "sys/bus/pci/devices"))
	if err != nil {
		return nil, nil, err
	}
	groups = map[string]string{}
	for _, entry := range entries {
		address := entry.Name()
		driver, _ := os.Readlink(h.function(address, "driver"))
		if !h.isVendors(address) || filepath.Base(driver) != "vfio-pci" {
			continue
		}
		if groups[address], err = h.group(address); err != nil {
			return nil, nil, err
		}
		addresses = append(addresses, address)
	}
	return addresses, groups, nil
}

type plugin struct {
	host    host
	groups  map[string]string
	ids     []string
	stopped chan struct{}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *plugin) GetPreferredAllocation(context.Context, *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	return &v1beta1.PreferredAllocationResponse{}, nil
}

func (p *plugin) PreStartContainer(context.Context, *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	return &v1beta1.PreStartContainerResponse{}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	list := &v1beta1.ListAndWatchResponse{}
	for _, id := range p.ids {
		list.Devices = append(list.Devices, &v1beta1.Device{ID: id, Health: "Healthy"})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	select {
	case <-p.stopped:
	case <-stream.Context().Done():
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for _, asked := range request.ContainerRequests {
		nodes := []string{"/dev/vfio/vfio"}
		for _, id := range asked.DevicesIds {
			group, err := p.host.group(id)
			if err != nil || group != p.groups[id] || !p.host.isVendors(id) {
				return nil, fmt.Errorf("invalid allocation request: unknown device: %s", id)
			}
			nodes = append(nodes, "/dev/vfio/"+group)
		}
		if _, err := os.Stat(filepath.Join(string(p.host), "dev/iommu")); err == nil {
			return nil, fmt.Errorf("the host has /dev/iommu, of which this plugin knows nothing")
		}
		if memory, _ := os.ReadDir(filepath.Join(string(p.host), "sys/class/egm")); len(memory) > 0 {
			return nil, fmt.Errorf("the host has extended memory, of which this plugin knows nothing")
		}
		container := &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"PCI_RESOURCE_NVIDIA_COM_GO": strings.Join(asked.DevicesIds, ",")},
		}
		for _, node := range nodes {
			container.Devices = append(container.Devices,
				&v1beta1.DeviceSpec{ContainerPath: node, HostPath: node, Permissions: "mrw"})
		}
		response.ContainerResponses = append(response.ContainerResponses, container)
	}
	return response, nil
}

// serve makes a resource's server and registers it, as NVIDIA's does: one connection to the kubelet for each.
func serve(directory string, number int, of *plugin) (*grpc.Server, error) {
	endpoint := fmt.Sprintf("go-%d.sock", number)
	listener, err := net.Listen("unix", filepath.Join(directory, endpoint))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, of)
	go server.Serve(listener)
	kubelet, err := grpc.Dial("unix://"+filepath.Join(directory, "kubelet.sock"), grpc.WithInsecure(), grpc.WithBlock())
	if err != nil {
		return nil, err
	}
	defer kubelet.Close()
	_, err = v1beta1.NewRegistrationClient(kubelet).Register(context.Background(), &v1beta1.RegisterRequest{
		Version: "v1beta1", Endpoint: endpoint, ResourceName: fmt.Sprintf("nvidia.com/GO_%d", number)})
	return server, err
}

func run() error {
	if len(os.Args) != 4 {
		return fmt.Errorf("usage: go_plugin DIRECTORY RESOURCES HOST")
	}
	resources, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	on := host(os.Args[3])
	addresses, groups, err := on.groups()
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	var servers []*grpc.Server
	for number := 0; number < resources; number++ {
		of := &plugin{host: on, groups: groups, stopped: stopped}
		for i := number; i < len(addresses); i += resources {
			of.ids = append(of.ids, addresses[i])
		}
		server, err := serve(os.Args[1], number, of)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	<-stop
	close(stopped)
	for _, server := range servers {
		server.GracefulStop()
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
