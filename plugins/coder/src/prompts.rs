//! The texts that models see. Each can be tuned by its name through the configuration.

/// Prompt `system`: standing instructions in both tool formats.
pub(crate) const SYSTEM: &str = "\
You are a careful software engineer. You work in the directory /workspace through tools and see \
nothing else. Look before you change, keep changes small, run what you wrote, and submit when you \
are sure. Each turn use at least one tool.";

/// Prompt `text-tools`: appended to `system` where the model has no native tools.
pub(crate) const TEXT_TOOLS: &str = "\
Tools are fenced blocks in your reply. They are run in order, and you get their results.

Run a shell line:
```bash
ls -l
```
Show a file, all of it or some lines, or list a folder:
```view src/app.py 1-80
```
Replace text in a file. The text under SEARCH must occur exactly once; leave it empty to make a \
new file:
```edit src/app.py
<<<<<<< SEARCH
old lines
=======
new lines
>>>>>>> REPLACE
```
Finish, with a file as the answer, or with the answer in the block:
```submit src/app.py
```";

/// Prompt `task`: the first message. `{input}` is the task.
pub(crate) const TASK: &str = "{input}";

/// Prompt `reminder`: the answer to a reply without any tool.
pub(crate) const REMINDER: &str =
    "You used no tool. Go on with a tool, or submit your answer if you are done.";

/// Prompt `restart`: the first message after the history grew too long. `{input}` is the task,
/// `{done}` what was done, `{last}` the last result.
pub(crate) const RESTART: &str = "\
{input}

You have worked on this before; the conversation grew too long and begins again. So far you did:
{done}
The last result was:
{last}
Go on from here.";
