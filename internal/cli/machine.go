package cli

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

func getProcess(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "process",
		Aliases: []string{"Process", "processes"},
		Short:   "show the processes of the server's machine, as top does",
		Example: "  loxicmd get process",
		Args:    cobra.NoArgs,
		RunE: show(o, (*v1.Client).GetProcesses, func(list *v1.ProcessList) *table {
			t := newTable("pid", "user", "priority", "nice", "virtMemory", "residentSize", "sharedMemory", "status", "CPUUsage", "MemoryUsage", "time", "command")
			for _, p := range list.ProcessAttr {
				t.add(p.Pid, p.User, p.Priority, p.Nice, p.VirtMemory, p.ResidentSize, p.SharedMemory, p.Status, p.CPUUsage, p.MemoryUsage, p.Time, oneLine(p.Command))
			}
			return t
		}),
	}
}

func getDevice(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "device",
		Aliases: []string{"devices"},
		Short:   "show what the server's machine is",
		Example: "  loxicmd get device",
		Args:    cobra.NoArgs,
		RunE: show(o, (*v1.Client).GetDevice, func(d *v1.DeviceInfo) *table {
			t := newTable("hostName", "machineID", "bootID", "OS", "kernel", "architecture", "uptime")
			t.add(d.HostName, d.MachineID, d.BootID, d.OS, d.Kernel, d.Architecture, d.Uptime)
			return t
		}),
	}
}

func getFilesystem(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "filesystem",
		Aliases: []string{"fs"},
		Short:   "show the file systems of the server's machine, as df does",
		Example: "  loxicmd get filesystem",
		Args:    cobra.NoArgs,
		RunE: show(o, (*v1.Client).GetFilesystems, func(list *v1.FilesystemList) *table {
			t := newTable("fileSystem", "type", "size", "used", "avail", "usePercent", "mountedOn")
			for _, f := range list.FilesystemAttr {
				t.add(oneLine(f.FileSystem), f.Type, f.Size, f.Used, f.Avail, f.UsePercent, oneLine(f.MountedOn))
			}
			return t
		}),
	}
}

// show asks for an object and prints it as a table, or as it is.
func show[T any](o *options, ask func(*v1.Client, context.Context, ...v1.RequestEditorFn) (*http.Response, error), draw func(*T) *table) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		client, err := o.client()
		if err != nil {
			return err
		}
		body, err := o.answer(ask(client, cmd.Context()))
		if err != nil {
			return err
		}
		if o.output == "json" || o.output == "yaml" {
			return o.printRaw(body)
		}
		object := new(T)
		if err := decode(body, object); err != nil {
			return err
		}
		return o.print(draw(object).String())
	}
}
