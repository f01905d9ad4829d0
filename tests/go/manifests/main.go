// Command manifests reads a file of deploy/ by the code that reads it where it is used, and prints what was understood as JSON:
//
//	manifests pod FILE         Kubernetes' own types; a field that they do not have is an error, as for the API server with strict validation
//	manifests compose FILE     Compose's loader: the schema of the Compose specification, references between services
//	manifests dockerfile FILE  BuildKit's parser: stages, each with its instructions
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	readers := map[string]func(string) (any, error){"pod": pod, "compose": compose, "dockerfile": dockerfile}
	if len(os.Args) != 3 || readers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: manifests pod|compose|dockerfile FILE")
		os.Exit(2)
	}
	read, err := readers[os.Args[1]](os.Args[2])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(read)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pod(file string) (any, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		return nil, err
	}
	if pod.APIVersion != "v1" || pod.Kind != "Pod" {
		return nil, fmt.Errorf("%s %s is no pod of v1", pod.APIVersion, pod.Kind)
	}
	return pod, nil
}

func compose(file string) (any, error) {
	details := types.ConfigDetails{WorkingDir: filepath.Dir(file), ConfigFiles: types.ToConfigFiles([]string{file})}
	return loader.LoadWithContext(context.Background(), details, func(options *loader.Options) {
		options.SetProjectName("manifests", false)
	})
}

// A stage of an image: its name, what it begins from, its instructions, and the stages that it copies from.
type stage struct {
	Name     string        `json:"name"`
	From     string        `json:"from"`
	Commands []instruction `json:"commands"`
	Copies   []string      `json:"copies"`
}

type instruction struct {
	Name  string   `json:"name"`
	Words []string `json:"words"`
}

func dockerfile(file string) (any, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	read, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, err
	}
	if len(read) == 0 {
		return nil, errors.New("there is no stage")
	}
	var stages []stage
	for _, one := range read {
		stages = append(stages, of(one))
	}
	return stages, nil
}

func of(read instructions.Stage) stage {
	stage := stage{Name: read.Name, From: read.BaseName}
	for _, command := range read.Commands {
		words := []string{}
		switch command := command.(type) {
		case *instructions.CopyCommand:
			stage.Copies = append(stage.Copies, command.From)
			words = append(append(words, command.SourcePaths...), command.DestPath)
		case *instructions.EntrypointCommand:
			words = command.CmdLine
		case *instructions.CmdCommand:
			words = command.CmdLine
		case *instructions.RunCommand:
			words = command.CmdLine
		case *instructions.WorkdirCommand:
			words = append(words, command.Path)
		case *instructions.UserCommand:
			words = append(words, command.User)
		}
		stage.Commands = append(stage.Commands, instruction{command.Name(), words})
	}
	return stage
}
