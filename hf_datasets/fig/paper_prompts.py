"""The prompts of VERIFIED as its supplement prints them (listings 2 to 9), with their slips and placeholders.

The end of listing 3 falls on a page break: its third candidate and the closing braces are put in.
"""

from collections.abc import Mapping
from typing import Final

LISTINGS: Final[Mapping[str, str]] = {
    "fig-attributes": """\
This image is extracted from a video clip that describes "{query}". Now you are asked to supplement the description \
with detailed attributes of this image, including background, and other detailed attributes of the main focused \
objects if they appear in this image. You may focus on age, color, quantity, positional relationships, and so on if \
such attributes are clear. You should only say what you observed and not give suggestions or indications. Pay \
attention that you should answer it briefly. Answer with the format:

"Background: ...,

Objects Attributes:..."

Finally, generate a new brief description mainly based on the original description with attributes information \
incorporated. The narratives should be similar to the original description. Answer with the format:
"Desc:...".""",
    "fig-static": """\
Augment the caption of the video clip with fine-grained static content (scenes, objects, background...). You are \
given detailed descriptions of several keyframes in the video clip. What you need to do is find significant and \
reliable information that is missing in the original caption and enrich the original caption.

This is an example:

Suppose you find some new significant information, you can answer 3 different candidates in JSON format:
{{
    "original": " Another man is interviewed by the camera and shows off his surfing skills on his board.",

    "1": "Another man is interviewed by the camera in front of a surfboard, wearing a red cap and yellow shirt, and \
shows off his surfing skills on his board, skillfully navigating large, breaking waves in the ocean with another \
surfer in the distance.",

    "2": "Another man is interviewed by the camera, standing before a surfboard with a Red Bull cap and yellow shirt, \
and shows off his surfing skills on his board, riding dynamic ocean waves during the VANS WORLD CUP OF SURFING."

    "3": "Another man is interviewed by the camera, sporting a red cap and yellow shirt, and shows off his surfing \
skills on his board, expertly maneuvering through frothy waves in the ocean, with a backdrop of a surfing event sign \
and a bicycle nearby."
}}

Now it's your turn to finish the task.

The original caption of this video clip is "{original_description}" There are {keyframe_number} keyframes with \
detailed information in temporal order:
{attribute_content}

You enrich the original caption based on the given keyframe descriptions and answer in the format below which \
contains at least 3 enriched captions.

{{
    "original": "...",

    "1": "...",

    "2": "...",

    "3": "..."
}}""",
    "fig-questions": """\
There is a coarse description of a video clip that shows an activity. An image understanding expert has told you all \
the static and spatial information about this video to you, like the object and the scene. Now you want to know \
dynamic and temporal information about this clip. Suppose you can ask a video understanding expert questions about \
this video and it will tell you.

For example, the original description is "groups of people are dancing.", and you can ask "What are the detailed \
moves of this dance?"
For example, again, the original description is "a man rides a bicycle in front of a house.", and you can ask "What \
is the direction of the man's moving?"

Ok, the current video description is "{original_description}". You should prepare at least 5 questions about the \
dynamic and temporal content of the video based on the original description, focusing on the action or motion itself. \
You can use common knowledge when you think about it. Generate your answer briefly with one sentence for each question \
in the format of "1. ... 2. ... 3. ... 4. ... 5. ...".""",
    "fig-answers": """\
The video has a duration of {duration} seconds and is sampled to {frame_number} frames. The frames are ordered and \
indexed by 1,2,3... This video clip shows "{description}"(an original description). You should briefly answer the \
questions one-by-one in one sentence in the format of "1. ... 2. ... 3. ...".
{questions}

Then you give a detailed description of the dynamic information in this video, e.g. actions and motions. You can take \
into consideration the variation of position, size, light, camera shot, and other activities that are not described \
in the original description, and so on. You can say more details of the people's actions. If there are other dynamic \
objects, you can additionally describe them in a sentence.""",
    "fig-dynamic": """\
An original caption describes a specific moment in a video. Now you should modify the original caption by adding more \
fine-grained temporally dynamic information. There are several questions about the dynamic details and a strong \
expert answers these questions and gives a detailed description of the dynamic info in this video moment. You should \
refer to this information and, importantly, preserve the original semantics. You should not make up fake content. You \
are NOT required to utilize all dynamic information and you should consider some distinctive and reliable dynamic \
information, like the variation of the position, and more activities and interactions, finally form a new short and \
brief caption in one sentence like the original one in writing styles. You rewrite the new caption, following the \
example's format.

Here is an example, suppose the original caption is "All three dancer have their backs to the camera." You find more \
dynamic information and you can output like:

"All three dancer have their backs to the camera and move in synchronized circles."

Now it's your turn to finish this task.

An original caption "{original}" describes a specific moment, from {st} to {ed} seconds, in a video.

Questions and Answers:
1.
(Q) {q1}
(A) {a1}

2.
(Q) {q2}
(A) {a2}

3.
(Q) {q3}
(A) {a3}

4.
(Q) {q4}
(A) {a4}

5.
(Q) {q5}
(A) {a5}

Dynamic description:
{dynamic_description}

Your rewrited caption should be only in one sentence and brief, similar to the original caption in writing style, \
with as FEW words as possible. You should NOT make up any unexisting content and you should reserve the original \
words! You should hide words about explicit time information because this will leak clues! They both should be short \
in words. You should consider some distinctive and reliable dynamic information, like variation of the position, and \
more activities and interactions. They should all be authentic and fine-grained but brief. You give about 3 DIFFERENT \
candidate answers in the format "1. ... 2. ... 3. ...\"""",
    "fig-positives": """\
You are required to rewrite the sentence with the same meanings and similar styles and lengths. Use commonly used \
simple words and phrases!

For example, the original sentence is:
"A little boy stands up to chase a cat on the grass."
You can answer:
1. "A boy stands up to run after a cat on the grass."
2. "A little boy gets up to chase a cat on the grass."
3. "A little boy stands up, and then chases a kitty on the grass."

For example, the original sentence is:
"A yellow automobile arrives and stops beside a house."
You can answer:
1. "There is a yellow car arriving and stopping beside a house."
2. "A yellow car pulls up and parks beside a house."
3. "A yellow automobile arrives and stops next to a house."

Now following these examples, it's your turn. The original sentence is:
"{original}".
Now you give your rewritten sentence, 3 different candidates, NOT change the meanings, in the format of 1. ... 2. ... \
3. ...:""",
    "fig-static-negatives": """\
You are required to rewrite the sentence to change some STATIC fine-grained information (like color, age, position, \
new objects or persons, light, background, and so on) while maintaining other meanings, to make the rewriting one \
distinctive to the original (a negtive sample of the original one). Use commonly used simple words and phrases with \
similar writing styles and lengths!

For example, the original sentence is:
"A little boy stands up to run after a cat on the grass."
You can answer:
1. "A little girl stands up to run after a cat on the grass."
2. "A boy stands up to run after a dog on the grass."
3. "A little boy stands up to run after a cat on the street."

For example, the original sentence is:
"A yellow car pulls up and parks beside the left window of the house."
You can answer:
1. "A white car pulls up and parks beside the left window of the house."
2. "A yellow car pulls up and parks beside the right window of the house."
3. "A yellow bus pulls up and parks between two houses."

Now following these examples, it's your turn. The original sentence is:
"{original}".
Now you give your rewritten brief sentence, 3 different candidates, to modify important fine-grained static details \
to vary semantics, remaining others unchanged, in the format of 1. ... 2. ... 3. ...:""",
    "fig-dynamic-negatives": """\
You are required to rewrite the sentence to change some DYNAMIC fine-grained information (like size variation, \
direction or position variation, light variation, modifying or adding motion and activities, new interactions, and so \
on) while maintaining other meanings, to make the rewriting one distinctive to the original (a negtive sample of the \
original one). Use commonly used simple words and phrases with similar writing styles and lengths!

For example, the original sentence is:
"A little boy stands up to run after a cat on the grass."
You can answer:
1. "A little boy stops running after a cat on the grass."
2. "A cat runs after a little boy on the grass."
3. "A little boy turns back to look at a cat on the grass."

For example, the original sentence is:
"A yellow car passes the cross from left to right."
You can answer:
1. "A yellow car finally stops in front of the cross."
2. "A yellow car passes the cross from right to left."
3. "A yellow car goes past people along the street."

Now following these examples, it's your turn. The original sentence is:
"{original}".
Now you give your rewritten brief sentence, 3 different candidates, to modify important fine-grained dynamic details, \
remaining others unchanged, in the format of 1. ... 2. ... 3. ...:""",
}
"""Name of a task -> its prompt, for `str.format`."""
