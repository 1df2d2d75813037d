package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	v1 "loxilb/api/v1"
)

// maxFile is what the server takes in one request.
const maxFile = 64 << 20

func applyCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "create or update the services and endpoints of a file",
		Long: "The file is JSON or YAML: what `loxicmd get lb` or `get endpoint` prints with -o json or -o yaml, a single\n" +
			"service, or documents of apiVersion netlox/v1 and kind Loadbalancer or Endpoint with the service, or how an address\n" +
			"is probed, in spec; several documents are separated by lines of three dashes. Of the services all are applied\n" +
			"or none; endpoints follow one by one, but for those that services have probed. What the file does not name stays as it is.",
		Example: "  loxicmd get lb -o yaml >services.yaml\n  loxicmd get endpoint -o yaml >endpoints.yaml\n  loxicmd apply -f services.yaml",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = createFile(o, cmd)
	cmd.Flags().StringP("lb", "l", "", "the same as --file")
	cmd.MarkFlagsMutuallyExclusive("file", "lb")
	return cmd
}

// createFile gives a command the flag --file, and sends what it names.
func createFile(o *options, cmd *cobra.Command) func(*cobra.Command, []string) error {
	cmd.Flags().StringP("file", "f", "", "file of services and endpoints; - is standard input")
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
		wanted, err := readManifest(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return o.apply(cmd.Context(), wanted)
	}
}

// apply sends the services by one request, then each endpoint by its own.
func (o *options) apply(ctx context.Context, wanted *manifest) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	var body []byte
	changed := len(wanted.services) > 0
	if changed {
		request, err := json.Marshal(map[string]any{"lbAttr": wanted.services})
		if err != nil {
			return err
		}
		if body, err = o.answer(client.CreateLoadbalancerWithBody(ctx, "application/json", bytes.NewReader(request))); err != nil {
			return err
		}
	}
	for _, endpoint := range wanted.endpoints {
		resp, err := client.CreateEndpointWithBody(ctx, "application/json", bytes.NewReader(endpoint))
		there := err == nil && resp.StatusCode == http.StatusConflict // with the same content
		answer, err := o.answer(resp, err)
		if err != nil && !there {
			return fmt.Errorf("%s: %w; the services, and endpoints before it, are applied", nameOf(endpoint), err)
		}
		if !there {
			body, changed = answer, true
		}
	}
	if !changed {
		return o.answered(body, "unchanged")
	}
	return o.done(body)
}

// nameOf is what an error calls an endpoint of a file.
func nameOf(endpoint json.RawMessage) string {
	var e v1.EndpointProbe
	_ = json.Unmarshal(endpoint, &e) // what is of a wrong type the server has refused
	return strings.TrimSpace("endpoint " + cmp.Or(e.Name, e.HostName))
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

// manifest is the objects of a file.
type manifest struct{ services, endpoints []json.RawMessage }

// readManifest collects the objects of all documents. What is in one it does not look at: the server does, and names what it refuses.
func readManifest(data []byte) (*manifest, error) {
	all := &manifest{}
	for i, doc := range documents(string(data)) {
		if err := all.add([]byte(doc)); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
	}
	if len(all.services)+len(all.endpoints) == 0 {
		return nil, errors.New("there is no service in it, and no endpoint")
	}
	return all, nil
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

func (all *manifest) add(doc []byte) error {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	var d struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Spec       json.RawMessage   `json:"spec"`
		LbAttr     []json.RawMessage `json:"lbAttr"`
		Attr       []json.RawMessage `json:"Attr"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		if bytes.Equal(data, []byte("null")) {
			return nil
		}
		return errors.New("it is neither a service nor a list of services or endpoints")
	}
	switch {
	case d.Kind != "":
		if d.APIVersion != "netlox/v1" {
			return fmt.Errorf("apiVersion %q is not netlox/v1", d.APIVersion)
		}
		return all.addKind(d.Kind, d.Spec)
	case d.LbAttr != nil:
		all.services = append(all.services, d.LbAttr...)
	case d.Attr != nil:
		return all.addListed(d.Attr)
	case bytes.Equal(data, []byte("null")):
	default:
		all.services = append(all.services, data)
	}
	return nil
}

func (all *manifest) addKind(kind string, spec json.RawMessage) error {
	list := map[string]*[]json.RawMessage{
		"loadbalancer": &all.services, "lb": &all.services, "endpoint": &all.endpoints, "ep": &all.endpoints,
	}[strings.ToLower(kind)]
	switch {
	case list == nil:
		return fmt.Errorf("kind %q is not available yet, only Loadbalancer and Endpoint", kind)
	case spec == nil:
		return errors.New("spec is missing")
	}
	*list = append(*list, spec)
	return nil
}

// addListed leaves out what get endpoint shows only because services have it probed.
func (all *manifest) addListed(list []json.RawMessage) error {
	for _, e := range list {
		var shown struct {
			Object   bool
			Services []string
		}
		if err := json.Unmarshal(e, &shown); err != nil {
			return errors.New("a member of Attr is no endpoint")
		}
		if shown.Object || len(shown.Services) == 0 {
			all.endpoints = append(all.endpoints, e)
		}
	}
	return nil
}
