package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// maxFile is what the server takes in one request.
const maxFile = 64 << 20

func applyCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "create or update the services of a file, all of them or none",
		Long: "The file is JSON or YAML: what `loxicmd get lb -o json` or `-o yaml` prints, a single service, or\n" +
			"documents of apiVersion netlox/v1 and kind Loadbalancer with the service in spec; several documents\n" +
			"are separated by lines of three dashes. Services that the file does not name stay as they are.",
		Example: "  loxicmd get lb -o yaml >services.yaml\n  loxicmd apply -f services.yaml",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = createFile(o, cmd)
	cmd.Flags().StringP("lb", "l", "", "the same as --file")
	cmd.MarkFlagsMutuallyExclusive("file", "lb")
	return cmd
}

// createFile gives a command the flag --file, and sends what it names.
func createFile(o *options, cmd *cobra.Command) func(*cobra.Command, []string) error {
	cmd.Flags().StringP("file", "f", "", "file of services; - is standard input")
	return func(cmd *cobra.Command, _ []string) error {
		path := cmd.Flag("file").Value.String()
		if l := cmd.Flag("lb"); l != nil && path == "" {
			path = l.Value.String()
		}
		if path == "" {
			if cmd.HasSubCommands() {
				return needObject(cmd, nil)
			}
			return errors.New("which file? loxicmd apply -f FILE")
		}
		data, err := o.readFile(path)
		if err != nil {
			return err
		}
		request, err := fileRequest(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		client, err := o.client()
		if err != nil {
			return err
		}
		body, err := o.answer(client.CreateLoadbalancerWithBody(cmd.Context(), "application/json", bytes.NewReader(request)))
		if err != nil {
			return err
		}
		return o.done(body)
	}
}

func (o *options) readFile(path string) ([]byte, error) {
	in := o.env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // it is only read
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return data, nil
}

// fileRequest makes one request of all documents. What is in a service it does not look at: the server does, and
// names what it refuses.
func fileRequest(data []byte) ([]byte, error) {
	services := []json.RawMessage{}
	for i, doc := range documents(string(data)) {
		found, err := servicesOf([]byte(doc))
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		services = append(services, found...)
	}
	if len(services) == 0 {
		return nil, errors.New("there is no service in it")
	}
	return json.Marshal(map[string]any{"lbAttr": services})
}

// documents cuts at lines of three dashes and leaves out what is empty.
func documents(text string) []string {
	var docs []string
	var doc strings.Builder
	flush := func() {
		if strings.TrimSpace(doc.String()) != "" {
			docs = append(docs, doc.String())
		}
		doc.Reset()
	}
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \t\r\n") == "---" {
			flush()
			continue
		}
		doc.WriteString(line)
	}
	flush()
	return docs
}

func servicesOf(doc []byte) ([]json.RawMessage, error) {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	var d struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Spec       json.RawMessage   `json:"spec"`
		LbAttr     []json.RawMessage `json:"lbAttr"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		if bytes.Equal(data, []byte("null")) {
			return nil, nil
		}
		return nil, errors.New("it is neither a service nor a list of services")
	}
	switch {
	case d.Kind != "":
		if d.APIVersion != "netlox/v1" {
			return nil, fmt.Errorf("apiVersion %q is not netlox/v1", d.APIVersion)
		}
		if k := strings.ToLower(d.Kind); k != "loadbalancer" && k != "lb" {
			return nil, fmt.Errorf("kind %q is not available yet, only Loadbalancer", d.Kind)
		}
		if d.Spec == nil {
			return nil, errors.New("spec is missing")
		}
		return []json.RawMessage{d.Spec}, nil
	case d.LbAttr != nil:
		return d.LbAttr, nil
	case bytes.Equal(data, []byte("null")):
		return nil, nil
	}
	return []json.RawMessage{data}, nil
}
