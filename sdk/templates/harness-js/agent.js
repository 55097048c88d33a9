// {{name}}: an agent that works with the shell.
//
// The model writes shell lines as fenced blocks; each is run in the task's workspace. A reply
// without a block is the answer.

import { run as execute } from "fulgurite:plugin/exec@0.1.0";
import { Conversation } from "fulgurite:plugin/llm@0.1.0";

const SYSTEM = `You work in a folder through its shell. To run a line, write
\`\`\`bash
ls
\`\`\`
and wait for the result. When you know the answer, write it and nothing else.`;

const CONFIG_SCHEMA = {
  type: "object",
  properties: {
    max_turns: { type: "integer", default: 10, description: "Replies before it gives up." },
    prompts: { type: "object", properties: { system: { type: "string" } } },
  },
  additionalProperties: false,
};

const utf8 = new TextDecoder();

/** The bodies of all fenced blocks. */
function blocks(text) {
  return Array.from(text.matchAll(/^```[^\n`]*\n(.*?)^```[ \t]*$/gms), (match) => match[1]);
}

/** What the model is told about a command. */
function transcript(line) {
  const output = execute({
    command: { tag: "line", val: line },
    env: [],
    stdin: new Uint8Array(),
    metadata: [],
  });
  const text = utf8.decode(output.stdout.bytes) + utf8.decode(output.stderr.bytes);
  return (text || "[no output]\n") + (output.status === 0 ? "" : `[exit status ${output.status}]\n`);
}

/** A call of the contract; its error becomes the failure of the episode. */
function call(work) {
  try {
    return work();
  } catch (error) {
    const { tag, val } = error.payload ?? {};
    throw { message: tag ? `the host answered ${tag} ${val ?? ""}` : String(error), metadata: [] };
  }
}

export const agent = {
  describe() {
    return {
      name: "{{name}}",
      version: "0.1.0",
      configSchema: JSON.stringify(CONFIG_SCHEMA),
      prompts: [{ name: "system", default: SYSTEM }],
      modelRoles: ["policy"],
      tools: [],
      wants: ["llm", "exec", "workspace"],
    };
  },

  run(task, config) {
    const { max_turns = 10, prompts = {} } = JSON.parse(config || "{}");
    const conversation = call(() =>
      Conversation.open({
        modelRole: "policy",
        agent: "",
        system: prompts.system ?? SYSTEM,
        tools: [],
        metadata: [],
      }),
    );
    const send = (text) => {
      const message = { role: "user", parts: [{ tag: "text", val: text }], metadata: [] };
      const reply = call(() => conversation.send([message], { stop: [], metadata: [] }));
      const texts = reply.message.parts.filter((part) => part.tag === "text");
      return texts.map((part) => part.val).join("");
    };
    let text = send(task.input);
    for (let turn = 1; turn < max_turns; turn += 1) {
      const lines = blocks(text);
      if (lines.length === 0) {
        return { status: "submitted", answer: text.trim(), metadata: [] };
      }
      const results = call(() => lines.map(transcript));
      text = send(results.join("\n"));
    }
    return { status: "gave-up", answer: text, metadata: [] };
  },
};
