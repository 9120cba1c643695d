package main
import ("testing";"os";"fmt";"strings";"github.com/scaffe/scaffe/caffe/proto")
func TestZZ(t *testing.T){
 var b strings.Builder
 for _, r := range proto.Support() { fmt.Fprintf(&b,"| `%s` | %s | %s |\n", strings.TrimPrefix(r.Field,"caffe."), r.Effect, r.Why) }
 x,_:=os.ReadFile("../../docs/training.md")
 os.WriteFile("../../docs/training.md", []byte(strings.Replace(string(x),"SUPPORT\n",b.String(),1)),0o644)
}
